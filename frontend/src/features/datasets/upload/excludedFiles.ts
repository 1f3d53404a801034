/** The files a user has excluded, kept in this tab across pages and reloads. */

export function excludedFiles(team: string): ReadonlySet<string> {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(keyOf(team)) ?? "[]");
    return new Set(Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);
  } catch {
    return new Set();
  }
}

export function storeExcludedFiles(team: string, ids: ReadonlySet<string>): void {
  try {
    sessionStorage.setItem(keyOf(team), JSON.stringify([...ids]));
  } catch {
    // Storage is full or forbidden; the checkbox works without it.
  }
}

function keyOf(team: string): string {
  return `trainwright.left.${team}`;
}
