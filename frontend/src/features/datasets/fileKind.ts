import type { DatasetFile } from "@/api/types";

const FORMATS: Record<string, string> = { text: "text", jsonl: "JSON Lines", parquet: "Parquet", csv: "CSV" };
const COMPRESSIONS: Record<string, string> = { gzip: ", gzip", zstandard: ", Zstandard" };

/** `JSON Lines, gzip`: the format detected from a file's bytes. */
export function fileKind({ format, compression }: Pick<DatasetFile, "format" | "compression">): string {
  if (format === null || format === undefined) return "unknown format";
  return `${FORMATS[format] ?? format}${COMPRESSIONS[compression] ?? ""}`;
}
