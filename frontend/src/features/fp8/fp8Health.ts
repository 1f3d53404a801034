/** Whether the FP8 measurements of a run are healthy, and what to do if not. */
import type { Fp8Recipe } from "@/api/types";

export interface Health {
  isHealthy: boolean;
  /** What is normal, or what to do. */
  message: string;
}

/**
 * A delayed scale fits the largest value of 16 steps; of 17 similar steps each is equally likely to be the
 * largest.
 */
export const MAX_CLAMPED = 1 / 17;
/**
 * Values below 2⁻¹⁰ ÷ 448 underflow, two millionths of the tensor's largest: losing one in a hundred does not
 * affect the norm.
 */
export const MAX_UNDERFLOW = 1e-2;
const MAX_LOST = 0.9;
/** Four halvings in a row are more than a single overflow. */
const MIN_HEADROOM = 1 / 16;

export function roundingHealth(clamped: number, underflow: number, amax: Fp8Recipe["amax"]): Health {
  if (amax === "delayed" && clamped > MAX_CLAMPED) {
    return unhealthy("Delayed scales were too small for these tensors, so their largest values were clamped. Use current amax.");
  }
  if (underflow > MAX_UNDERFLOW) {
    return unhealthy("A few large values set the scale, so small gradients vanish. Lower the learning rate; the map below shows which layer it is.");
  }
  return healthy(`Clamped is ${amax === "current" ? "0 with current amax" : "below 6 % with delayed amax"}; underflow is at most 1 %.`);
}

export function lostHealth(lost: number, level: string): Health {
  if (level === "O1") return healthy("At O1 weights are float32, so no update is lost.");
  if (lost > MAX_LOST) {
    return unhealthy("Hardly any weight changes in a step. Raise the learning rate, or use level O1, which keeps float32 weights.");
  }
  return healthy("Weights are rounded stochastically, without bias: a few percent of updates are lost early, more as the learning rate falls.");
}

export function headroomHealth(headroom: number): Health {
  if (headroom < MIN_HEADROOM) {
    return unhealthy("A gradient overflows repeatedly. Lower the learning rate, or clip at a smaller norm; the map below shows where.");
  }
  return healthy("It is 1, or halves at an overflow and grows back within 1,000 steps.");
}

/** The steps in which skipped steps are judged. */
export const RECENT_STEPS = 1_000;

/** Judges the steps that were skipped recently: a few at the start are harmless, and stay in the sum. */
export function skippedHealth(skipped: number, recent: number, limit: number): Health {
  if (recent > limit) {
    return unhealthy(`Gradients were not finite in ${recent} of the last 1,000 steps. Lower the learning rate. The logs name the tensor.`);
  }
  const rule = limit === 0 ? "The first one ends the attempt as diverged." : `More than ${limit} in a row end the attempt as diverged.`;
  return healthy(skipped === 0 ? `None. ${rule}` : `A few are harmless. ${rule}`);
}

function healthy(message: string): Health {
  return { isHealthy: true, message };
}

function unhealthy(message: string): Health {
  return { isHealthy: false, message };
}
