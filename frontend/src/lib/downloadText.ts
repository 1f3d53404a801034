/** Saves text, in one or more parts, as a file of this browser. */
export function downloadText(name: string, type: string, ...parts: string[]): void {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
