import type { DatasetFile } from "@/api/types";

const FORMATS: Record<string, string> = { text: "text", jsonl: "JSON Lines", parquet: "Parquet", csv: "CSV" };
const COMPRESSIONS: Record<string, string> = { gzip: ", gzip", zstandard: ", Zstandard" };

/** `JSON Lines, gzip`: what a file's bytes say it is. */
export function fileKind({ format, compression }: Pick<DatasetFile, "format" | "compression">): string {
  if (format === null || format === undefined) return "kind unknown";
  return `${FORMATS[format] ?? format}${COMPRESSIONS[compression] ?? ""}`;
}
