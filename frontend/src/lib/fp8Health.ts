/** Whether what an FP8 run measures is as it should be, and what to do where it is not. */

export interface Health {
  well: boolean;
  /** What is normal, or what to do. */
  words: string;
}

/** Delayed scales fit the largest of 16 steps; of 17 steps that are alike, each is the largest as often. */
export const MOST_CLAMPED = 1 / 17;
/** What is flushed is below 2⁻¹⁰ ÷ 448, two millionths of its tensor's largest: one in a hundred is nothing to the norm. */
export const MOST_FLUSHED = 1e-2;
const MOST_LOST = 0.9;
/** Four halvings in a row are no single overflow. */
const LEAST_HEADROOM = 1 / 16;

export function roundingHealth(clamped: number, flushed: number): Health {
  if (clamped > MOST_CLAMPED) {
    return bad("Delayed scales were too small for these tensors, whose largest values were cut off. Use amax present.");
  }
  if (flushed > MOST_FLUSHED) {
    return bad("A few large values set the scale, and small gradients vanish. Lower the learning rate; the map below shows which layer it is.");
  }
  return good("Clamped is 0 with amax present, and below 6 % with amax delayed; flushed is below 1 %.");
}

export function lostHealth(lost: number, level: string): Health {
  if (level === "O1") return good("At O1 weights are float32: none is lost.");
  if (lost > MOST_LOST) {
    return bad("Hardly a weight moves in a step. Raise the learning rate, or use level O1, which keeps float32 weights.");
  }
  return good("Weights are rounded at random, right on average: a few percent early, more as the learning rate falls.");
}

export function headroomHealth(headroom: number): Health {
  if (headroom < LEAST_HEADROOM) {
    return bad("A gradient overflows again and again. Lower the learning rate, or clip at a smaller norm; the map below shows where.");
  }
  return good("It is 1, or halves at an overflow and grows back within 1,000 steps.");
}

export function skippedHealth(skipped: number, limit: number): Health {
  if (skipped > 0) {
    return bad("A gradient was not finite. A few at the start do no harm; where they go on, lower the learning rate. Logs say which tensor it was.");
  }
  return good(limit === 0 ? "There is none: the first would end the run." : `There is none. More than ${limit} in a row end the run as diverged.`);
}

function good(words: string): Health {
  return { well: true, words };
}

function bad(words: string): Health {
  return { well: false, words };
}
