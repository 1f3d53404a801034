import { expect, it } from "vitest";
import { headroomHealth, lostHealth, roundingHealth, skippedHealth } from "@/features/fp8/fp8Health";

it.each([
  [roundingHealth(0, 5e-3, "current"), true, /^Clamped is 0 with current amax; underflow is at most 1 %/],
  [roundingHealth(5e-2, 0, "delayed"), true, /^Clamped is below 6 % with delayed amax;/],
  [roundingHealth(7e-2, 0, "delayed"), false, /Use current amax/],
  [roundingHealth(0, 2e-2, "current"), false, /Lower the learning rate; the map below/],
  [lostHealth(0.3, "O2"), true, /stochastically/],
  [lostHealth(0, "O1"), true, /weights are float32/],
  [lostHealth(0.95, "O3"), false, /level O1/],
  [headroomHealth(1), true, /1,000 steps/],
  [headroomHealth(0.25), true, /1,000 steps/],
  [headroomHealth(2 ** -6), false, /repeatedly/],
  [skippedHealth(0, 0, 3), true, /^None. More than 3 in a row end the attempt/],
  [skippedHealth(0, 0, 0), true, /The first one ends the attempt/],
  [skippedHealth(9, 2, 3), true, /^A few are harmless/],
  [skippedHealth(9, 4, 3), false, /not finite in 4 of the last 1,000 steps/],
  [skippedHealth(1, 1, 0), false, /not finite/],
])("explains what is normal, and what to do otherwise (%#)", ({ isHealthy, message }, expected, pattern) => {
  expect(isHealthy).toBe(expected);
  expect(message).toMatch(pattern);
});
