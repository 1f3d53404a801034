/** How the usage page looks at what was used: of how many days, day by day. */
import type { UsedByRun, UsedDay } from "@/api/types";

export const SPANS = ["7", "30", "90"] as const;

export type Span = (typeof SPANS)[number];

export interface UsageSearch {
  days?: Span;
}

export const FIRST_SPAN: Span = "30";

export function parseUsageSearch({ days }: Record<string, unknown>): UsageSearch {
  const span = SPANS.find((one) => (typeof days === "string" || typeof days === "number") && one === String(days));
  return span === undefined ? {} : { days: span };
}

export const DEVICE_WORDS: Record<string, { slots: string; hours: string }> = {
  cuda: { slots: "GPUs", hours: "GPU-hours" },
  cpu: { slots: "CPU slots", hours: "CPU slot-hours" },
};

export interface DayHours {
  day: string;
  hours: number;
}

const DAY_MS = 24 * 3_600_000;

/** Every day of the span in UTC, the last being today; a day of which nothing is known used nothing. */
export function everyDay(used: readonly UsedDay[], device: string, span: number, now = Date.now()): DayHours[] {
  const hours = new Map(used.filter((one) => one.device === device).map(({ day, slot_hours }) => [day, slot_hours]));
  return Array.from({ length: span }, (_, index) => {
    const day = new Date(now - (span - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    return { day, hours: hours.get(day) ?? 0 };
  });
}

/** Devices that were used, in the order of the words. */
export function devicesOf(used: readonly (UsedDay | UsedByRun)[]): string[] {
  const known = Object.keys(DEVICE_WORDS);
  return [...new Set(used.map(({ device }) => device))].sort((one, other) => known.indexOf(one) - known.indexOf(other));
}

/** 0.04, 3.2, 120: hours with as many digits as say something. */
export function hoursText(hours: number): string {
  if (hours === 0) return "0";
  if (hours < 0.01) return "< 0.01";
  return hours < 10 ? String(Number(hours.toPrecision(2))) : Math.round(hours).toLocaleString("en-US");
}

/** The least of 1, 2, 5 times a power of ten that is no less than the value: where an axis ends. */
export function axisTop(value: number): number {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((one) => one * unit >= value * 0.9999) ?? 10) * unit;
}
