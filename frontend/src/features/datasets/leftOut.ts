/** Which files somebody has left out, kept in this tab: they stay so on the next page and after a reload. */

export function leftOut(team: string): ReadonlySet<string> {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(keyOf(team)) ?? "[]");
    return new Set(Array.isArray(value) ? value.filter((one) => typeof one === "string") : []);
  } catch {
    return new Set();
  }
}

export function storeLeftOut(team: string, ids: ReadonlySet<string>): void {
  try {
    sessionStorage.setItem(keyOf(team), JSON.stringify([...ids]));
  } catch {
    // Full or forbidden: it is said again by its box.
  }
}

function keyOf(team: string): string {
  return `trainwright.left.${team}`;
}
