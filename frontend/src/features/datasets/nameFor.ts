/** A name for the dataset of some files: their common folder, else the first file's name without what tells its kind. */

const KIND = /\.(txt|text|md|jsonl|ndjson|json|csv|tsv|parquet)?(\.(gz|zst))?$/i;
const LONGEST = 80;

export function nameFor(names: readonly string[]): string {
  const first = names[0] ?? "";
  const folder = first.split("/")[0] ?? "";
  const shared = first.includes("/") && names.every((name) => name.startsWith(`${folder}/`));
  const bare = shared ? folder : (first.split("/").at(-1) ?? "").replace(KIND, "");
  return bare.slice(0, LONGEST);
}
