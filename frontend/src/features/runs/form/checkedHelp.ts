/** The help of fields for which the check of the spec found figures: of the data, and of the length of the run. */
import type { SpecCheck } from "@/api/types";
import { count, short } from "@/lib/format";

/** What is known of the data. */
export function dataText(check: SpecCheck | undefined): string {
  if (check?.spec == null) return "The data the model trains on.";
  const { version } = check.spec.data;
  const tokens = check.train_tokens;
  const which = version == null ? "" : `Version ${count(version)}: `;
  return tokens == null ? `${which}its tokens are counted when it is prepared with this tokenizer.` : `${which}${short(tokens)} training tokens with this tokenizer.`;
}

/** More passes over the same data hardly help (Muennighoff et al. 2023, "Scaling Data-Constrained Language Models"). */
const USEFUL_PASSES = 40;

/** How much text the steps are, and how often the data is repeated. */
export function lengthText(check: SpecCheck | undefined, startStep: number): string {
  const spec = check?.spec;
  if (spec == null) return "Optimizer steps of the run.";
  const perStep = spec.batch.global_sequences * spec.batch.sequence_tokens;
  const tokens = Math.max(0, spec.schedule.steps - startStep) * perStep;
  const times = check?.train_tokens == null || check.train_tokens === 0 ? null : tokens / check.train_tokens;
  const passes = times === null ? "" : `, ${timesText(times)} the training data`;
  const advice = times !== null && times > USEFUL_PASSES ? ` Beyond about ${count(USEFUL_PASSES)} passes, more training hardly helps: train fewer steps, or add data.` : "";
  const steps = startStep === 0 ? count(spec.schedule.steps) : `The ${count(Math.max(0, spec.schedule.steps - startStep))} more`;
  return `${steps} steps are ${short(tokens)} tokens${passes}.${advice}`;
}

function timesText(times: number): string {
  return times < 0.1 ? "less than a tenth of" : `${times < 10 ? times.toFixed(1) : count(times)} times`;
}
