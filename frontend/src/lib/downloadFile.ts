/** Lets the browser save the response of an address as a file. */
export function downloadFile(address: string): void {
  const link = document.createElement("a");
  link.href = address;
  link.download = "";
  link.click();
}
