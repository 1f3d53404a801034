// Terminal colour codes have no meaning here.
const ANSI_CODES = new RegExp(String.raw`\u001b\[[0-9;]*[A-Za-z]`, "g");

/** A log line as displayed. */
export function stripAnsi(text: string): string {
  return text.replace(ANSI_CODES, "");
}
