// Colours of terminals mean nothing here.
const ESCAPES = new RegExp(String.raw`\u001b\[[0-9;]*[A-Za-z]`, "g");

/** A line of a log as it is shown. */
export function plainLine(text: string): string {
  return text.replace(ESCAPES, "");
}
