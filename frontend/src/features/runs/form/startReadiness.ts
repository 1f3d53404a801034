import type { RunPlan, SpecCheck } from "@/api/types";
import { fieldLabel } from "@/lib/fieldLabel";
import { bytes, plural } from "@/lib/format";

/** Whether the edited run can start and would fit, in a few words and a sentence. */
export interface StartReadiness {
  tone: "good" | "warn" | "bad" | "idle";
  title: string;
  detail: string;
  /** What to do about it. */
  advice: string;
}

interface Given {
  problemCount: number;
  check: SpecCheck | undefined;
  plan: RunPlan | undefined;
}

export function startReadiness({ problemCount, check, plan }: Given): StartReadiness {
  const verdict = (tone: StartReadiness["tone"], title: string, text: string): StartReadiness => {
    const [detail = "", ...advice] = text.split(/(?<=\.) (?=[A-Z])/);
    return { tone, title, detail, advice: advice.join(" ") };
  };
  if (problemCount > 0) return verdict("bad", "Cannot start yet", `${plural(problemCount, "problem")} to solve first.`);
  if (check?.valid !== true) return verdict("idle", "Not checked yet", "Fill in the form; it is checked while you type.");
  const warnings = [...(plan?.warnings ?? []), ...check.warnings];
  if (warnings.length > 0) return verdict("warn", (plan?.warnings ?? []).length > 0 ? "May not fit" : "Can start with a warning", withLabels(warnings.join(" ")));
  if (plan === undefined) return verdict("idle", "Checking the memory…", "");
  const need = bytes(Math.max(...plan.memory.map(({ total }) => total)));
  if (plan.slot_bytes == null) return verdict("good", "Can start", `${need} per rank. No node has reported its memory yet.`);
  return verdict("good", "Fits", `Each rank needs ${need} of ${slotText(plan, plan.slot_bytes)}.`);
}

/** Names fields as the form does: `data.validation_fraction` → “Validation fraction”. */
function withLabels(text: string): string {
  return text.replace(/\b(?:batch|checkpoint|data|memory|model|optimizer|parallelism|precision|resources|schedule|validation)\.(?:\w+\.)*(\w+)/g, (_path, key: string) => `“${fieldLabel(key)}”`);
}

/** What a rank has: a GPU's memory, or a CPU slot's share of its node's, which a run alone on the node can exceed. */
export function slotText({ slot_device: device, slot_node: node }: RunPlan, slot: number): string {
  return `${bytes(slot)}${device === "cpu" ? ", a slot’s share of the memory" : ""}${node == null ? "" : ` on ${node}`}`;
}
