import type { Json } from "@/features/runs/spec/specFields";

/** A text in quotation marks if spaces or line breaks of it would not be seen; of a list of texts, all or none. */
export function withQuotes(value: Json): Json {
  if (typeof value === "string") return hasHiddenSpaces(value) ? JSON.stringify(value) : value;
  if (!Array.isArray(value) || !value.some((item) => typeof item === "string" && hasHiddenSpaces(item))) return value;
  return value.map((item) => JSON.stringify(item));
}

function hasHiddenSpaces(text: string): boolean {
  return text === "" || /^\s|\s$|[\t\n]|\s\s/.test(text);
}
