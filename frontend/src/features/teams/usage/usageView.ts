/** Helpers of the usage page: its period and its days. */
import type { DailyUsage, Quota, RunUsage } from "@/api/types";

export const SPANS = ["7", "30", "90"] as const;

export type Span = (typeof SPANS)[number];

export interface UsageSearch {
  days?: Span;
}

export const DEFAULT_SPAN: Span = "30";

export function parseUsageSearch({ days }: Record<string, unknown>): UsageSearch {
  const span = SPANS.find((span) => (typeof days === "string" || typeof days === "number") && span === String(days));
  return span === undefined ? {} : { days: span };
}

export const DEVICE_LABELS: Record<string, { slots: string; hours: string }> = {
  cuda: { slots: "GPUs", hours: "GPU-hours" },
  cpu: { slots: "CPU slots", hours: "CPU slot-hours" },
};

/** The devices that some node has, or that the team uses: a limit of GPUs says nothing where there is none. */
export function shownQuota(quota: readonly Quota[]): Quota[] {
  return quota.filter(({ joined, used }) => joined == null || joined > 0 || used > 0);
}

export interface DayHours {
  day: string;
  hours: number;
}

const DAY_MS = 24 * 3_600_000;

/** Every day of the period in UTC up to today; a day without data has zero usage. */
export function fillDays(used: readonly DailyUsage[], device: string, span: number, now = Date.now()): DayHours[] {
  const hours = new Map(used.filter((one) => one.device === device).map(({ day, slot_hours }) => [day, slot_hours]));
  return Array.from({ length: span }, (_, index) => {
    const day = new Date(now - (span - 1 - index) * DAY_MS).toISOString().slice(0, 10);
    return { day, hours: hours.get(day) ?? 0 };
  });
}

/** Devices that were used, in the order of `DEVICE_LABELS`. */
export function devicesOf(used: readonly (DailyUsage | RunUsage)[]): string[] {
  const known = Object.keys(DEVICE_LABELS);
  return [...new Set(used.map(({ device }) => device))].sort((value, other) => known.indexOf(value) - known.indexOf(other));
}

/** 0.04, 3.2, 120: hours with a useful number of digits. */
export function hoursText(hours: number): string {
  if (hours === 0) return "0";
  if (hours < 0.01) return "< 0.01";
  return hours < 10 ? String(Number(hours.toPrecision(2))) : Math.round(hours).toLocaleString("en-US");
}

/** The smallest 1, 2 or 5 times a power of ten that is not less than the value: the end of an axis. */
export function axisTop(value: number): number {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((one) => one * unit >= value * 0.9999) ?? 10) * unit;
}
