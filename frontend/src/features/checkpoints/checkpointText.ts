import type { Checkpoint } from "@/api/types";
import { count, plural, short } from "@/lib/format";

export const KIND_LABELS: Record<Checkpoint["kind"], string> = {
  export: "Weights, Hugging Face layout",
  state: "Resumable state",
};

/** `134 k parameters; 401 k float32 values, saved by 2 ranks`; empty for weights and for checkpoints of older versions. */
export function contentText({ contents }: Checkpoint): string {
  // An export describes itself in its config.json.
  if (!contents || contents.parameters === 0) return "";
  const numbers = Object.entries(contents.dtypes)
    .sort(([, a], [, b]) => b - a)
    .map(([dtype, many]) => `${short(many)} ${dtype}`);
  const values = numbers.length > 0 ? `; ${numbers.join(" + ")} values` : "";
  return `${short(contents.parameters)} parameters${values}, saved by ${plural(contents.ranks, "rank")}`;
}

/** The attempt that wrote the checkpoint, and the step it resumed from. */
export function originText({ contents, attempt }: Checkpoint): string {
  const from = contents?.resumed_from_step;
  return from === null || from === undefined ? `attempt ${attempt}` : `attempt ${attempt}, from step ${count(from)}`;
}

/** A command for a terminal. It names the key's variable and never shows the key. */
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

/** A file name: characters that shells or file systems might not accept become hyphens. */
export function fileName({ run_name: name, run, step }: Checkpoint): string {
  return `${(name || run).replaceAll(/[^A-Za-z0-9._-]+/g, "-")}-step-${step}`;
}
