/** A default name for a dataset: the files' common folder, else the first file's name without its extensions. */

const EXTENSION = /\.(txt|text|md|jsonl|ndjson|json|csv|tsv|parquet)?(\.(gz|zst))?$/i;
const MAX_LENGTH = 80;

export function defaultName(names: readonly string[]): string {
  const first = names[0] ?? "";
  const folder = first.split("/")[0] ?? "";
  const shared = first.includes("/") && names.every((name) => name.startsWith(`${folder}/`));
  const name = shared ? folder : (first.split("/").at(-1) ?? "").replace(EXTENSION, "");
  return name.slice(0, MAX_LENGTH);
}
