import type { RunPlan } from "@/api/types";

/** Which weights decay, and which have another learning rate. */
export function WeightRules({ plan }: { plan: Pick<RunPlan, "what_decays" | "learning_rates"> | undefined }) {
  const sentences = [plan?.what_decays, plan?.learning_rates].filter((sentence) => sentence !== undefined && sentence !== "");
  return sentences.map((sentence) => (
    <p key={sentence} className="col-span-full text-small text-soft">
      {sentence}
    </p>
  ));
}
