/** The clipboard is closed to pages served by plain HTTP from another machine: there the text is shown to be copied. */
export async function copyText(text: string): Promise<void> {
  if (window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  window.prompt("Copy this text:", text);
}
