import type { Checkpoint } from "@/api/types";
import { count, plural, short } from "@/lib/format";

export const KINDS: Record<Checkpoint["kind"], string> = {
  export: "Weights, Hugging Face layout",
  state: "Resumable state",
};

/** `134 k parameters, 401 k float32 numbers, by 2 ranks`; empty for weights, and where an older version wrote it. */
export function holdsWords({ holds }: Checkpoint): string {
  // An export says it in its own config.json.
  if (!holds || holds.parameters === 0) return "";
  const numbers = Object.entries(holds.dtypes)
    .sort(([, a], [, b]) => b - a)
    .map(([dtype, many]) => `${short(many)} ${dtype}`);
  const parts = [`${short(holds.parameters)} parameters`, ...(numbers.length > 0 ? [numbers.join(" + ")] : []), `by ${plural(holds.ranks, "rank")}`];
  return parts.join(", ");
}

/** Which state the attempt that wrote it began from. */
export function lineageWords({ holds, attempt }: Checkpoint): string {
  const from = holds?.resumed_from_step;
  return from === null || from === undefined ? `attempt ${attempt}` : `attempt ${attempt}, from step ${count(from)}`;
}

/** What a person pastes into a terminal. The key is named, never shown. */
export function curlSnippet(address: string, file: string): string {
  return `curl -fL -H "Authorization: Bearer $TRAINWRIGHT_KEY" \\\n  -o ${file} \\\n  ${address}`;
}

export function pythonSnippet(server: string, team: string, checkpoint: Checkpoint, folder: string): string {
  return [
    "import os",
    "from pathlib import Path",
    "",
    "from trainwright.client import Client",
    "",
    `with Client(${JSON.stringify(server)}, os.environ["TRAINWRIGHT_KEY"]) as client:`,
    `    client.team(${JSON.stringify(team)}).download(`,
    `        ${JSON.stringify(checkpoint.run)}, Path(${JSON.stringify(folder)}), checkpoint_id=${JSON.stringify(checkpoint.id)}`,
    "    )",
  ].join("\n");
}

/** A name for files: what stands in for everything that shells or disks could take amiss is a hyphen. */
export function fileName({ run_name: name, run, step }: Checkpoint): string {
  return `${(name || run).replaceAll(/[^A-Za-z0-9._-]+/g, "-")}-step-${step}`;
}
