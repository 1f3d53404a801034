/**
 * The request of an entry of the audit log by field, with nested fields as `limits.hours`. What is no object, such as a long request
 * that was cut off, is one field without a name.
 */
export function requestFields(details: string): [string, string][] {
  const [, query = "", rest = ""] = /^(\?\S*)? ?(.*)$/s.exec(details) ?? [];
  const parameters = [...new URLSearchParams(query)].map(([name, value]): [string, string] => [name, value]);
  return rest === "" ? parameters : [...parameters, ...bodyFields(rest)];
}

function bodyFields(text: string): [string, string][] {
  try {
    const body: unknown = JSON.parse(text);
    if (typeof body === "object" && body !== null) return leaves(body, "");
  } catch {
    // The text as it is.
  }
  return [["", text]];
}

function leaves(value: object, path: string): [string, string][] {
  return Object.entries(value).flatMap(([key, item]: [string, unknown]) => {
    const name = `${path}${key}`;
    if (typeof item === "object" && item !== null && Object.keys(item).length > 0) return leaves(item, `${name}.`);
    return [[name, typeof item === "string" ? item : JSON.stringify(item)] satisfies [string, string]];
  });
}
