/**
 * Browsers block the clipboard for pages served over plain HTTP from another machine; the text is then shown to be
 * copied.
 */
export async function copyText(text: string): Promise<void> {
  if (window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  window.prompt("Copy this text:", text);
}
