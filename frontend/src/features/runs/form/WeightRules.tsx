import type { RunPlan } from "@/api/types";

interface Props {
  plan: Pick<RunPlan, "what_decays" | "learning_rates"> | undefined;
  isUpdating: boolean;
}

/** Which weights decay, and which have another learning rate. */
export function WeightRules({ plan, isUpdating }: Props) {
  const sentences = [plan?.what_decays, plan?.learning_rates].filter((sentence) => sentence !== undefined && sentence !== "");
  if (sentences.length === 0) return null;
  return (
    <div aria-busy={isUpdating} className={`mt-3 flex flex-col gap-1 text-small text-soft ${isUpdating ? "opacity-60" : ""}`}>
      {sentences.map((sentence) => (
        <p key={sentence}>{sentence}</p>
      ))}
    </div>
  );
}
