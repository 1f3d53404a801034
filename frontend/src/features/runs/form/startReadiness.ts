import type { RunPlan, SpecCheck } from "@/api/types";
import { withFieldLabels } from "@/lib/fieldLabel";
import { bytes, plural } from "@/lib/format";

/** Whether the edited run can start and would fit, in a few words and some sentences. */
export interface StartReadiness {
  tone: "good" | "warn" | "bad" | "idle";
  title: string;
  detail: string;
}

interface Given {
  problemCount: number;
  /** Where the first of them is, if at a field or line. */
  firstProblem?: string | undefined;
  check: SpecCheck | undefined;
  plan: RunPlan | undefined;
  /** Check and plan are those of an earlier configuration. */
  isUpdating?: boolean;
  /** Of the form's fields, by path. */
  labels: ReadonlyMap<string, string>;
}

export function startReadiness({ problemCount, firstProblem, check, plan, isUpdating = false, labels }: Given): StartReadiness {
  const verdict = (tone: StartReadiness["tone"], title: string, detail: string): StartReadiness => ({ tone, title, detail });
  if (problemCount > 0) return verdict("bad", "Cannot start yet", whatToFix(problemCount, firstProblem));
  if (isUpdating) return verdict("idle", "Checking…", "The form is checked while you type.");
  if (check?.valid !== true) return verdict("idle", "Not checked yet", "Fill in the form; it is checked while you type.");
  const warnings = [...(plan?.warnings ?? []), ...check.warnings];
  if (warnings.length > 0) return verdict("warn", (plan?.warnings ?? []).length > 0 ? "May not fit" : "Can start with a warning", withFieldLabels(warnings.join(" "), labels));
  if (plan === undefined) return verdict("idle", "Checking the memory…", "");
  const need = bytes(largestNeed(plan));
  if (plan.slot_bytes == null) return verdict("good", "Can start", `${need} per rank. No node has reported its memory yet.`);
  const who = plan.memory.length > 1 ? "The rank that needs the most memory takes" : "Each rank needs";
  return verdict("good", "Fits", `${who} ${need} of ${bytes(plan.slot_bytes)}.`);
}

function whatToFix(problemCount: number, first: string | undefined): string {
  if (first === undefined) return `${plural(problemCount, "problem")} to solve first.`;
  const others = problemCount > 1 ? ` and ${plural(problemCount - 1, "other problem")}` : "";
  return `Fix ${first}${others}.`;
}

/** Bytes that the rank with the most needs of its slot; a CPU rank offloads to the same memory. */
export function largestNeed({ memory, slot_device: device }: RunPlan): number {
  return Math.max(...memory.map(({ total, host }) => (device === "cpu" ? total + host : total)));
}

/** What a rank has: a GPU's memory, or a CPU slot's share of its node's, and what it has if no other run is on the node. */
export function slotText({ slot_device: device, slot_node: node, largest_bytes: alone }: RunPlan, slot: number): string {
  const share = `${bytes(slot)}${device === "cpu" ? ", a slot's share of the memory" : ""}${node == null ? "" : ` on ${node}`}`;
  return device === "cpu" && alone != null && alone > slot ? `${share} (up to ${bytes(alone)} when no other run is on the node)` : share;
}
