/** Comma-separated values (RFC 4180) that a spreadsheet reads as they are. */

export type CsvValue = string | number | null | undefined;

export function csvText(rows: readonly (readonly CsvValue[])[]): string {
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** Text that a spreadsheet would run as a formula gets an apostrophe. */
function cell(value: CsvValue): string {
  if (value == null) return "";
  const text = typeof value === "string" && /^[=+\-@\t]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
