/** A name for a run that was not named yet. */

const MAX_BASE = 70;

/** `base`, or `base-2` and so on if the team has such a run; only with characters that a run's name may have. */
export function suggestName(base: string, taken: readonly string[]): string {
  const plain = base
    .normalize("NFKD")
    .replaceAll(/[^A-Za-z0-9 ._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, MAX_BASE)
    .replace(/[ ._-]+$/, "");
  const start = plain === "" ? "run" : plain;
  const names = new Set(taken);
  let name = start;
  for (let number = 2; names.has(name); number += 1) name = `${start}-${number}`;
  return name;
}

/** The name of a copy: the same, with the next number. */
export function copyBase(name: string): string {
  return name.replace(/-\d+$/, "");
}
