/** Has the browser save what an address answers. */
export function downloadFile(address: string): void {
  const link = document.createElement("a");
  link.href = address;
  link.download = "";
  link.click();
}
