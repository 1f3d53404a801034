/** The request of an entry of the audit log: `role: viewer, name: Ada` of an object in JSON; anything else as it is. */
export function requestText(details: string): string {
  const given = parseObject(details);
  if (given === null) return details;
  return Object.entries(given)
    .map(([key, value]) => `${key.replaceAll("_", " ")}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed) ? (parsed as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
