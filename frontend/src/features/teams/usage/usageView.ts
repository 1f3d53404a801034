/** Helpers of the usage page: its period, its days and its people. */
import type { DailyMemberUsage, DailyRunUsage, DailyUsage, MemberUsage, Quota, RunUsage } from "@/api/types";
import { csvText } from "@/lib/csv";
import { count } from "@/lib/format";

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

/** The devices that some node has, or that the team uses: a limit of GPUs is irrelevant without GPUs. */
export function shownQuota(quota: readonly Quota[]): Quota[] {
  return quota.filter(({ joined, used }) => joined == null || joined > 0 || used > 0);
}

/** What else there is to say about a quota: the nodes if they have fewer slots than its limit, the guaranteed share, and what is borrowed beyond it. */
export function quotaNote({ used, limit, joined, guaranteed_slots: share }: Quota): string | undefined {
  const parts = [];
  if (joined != null && joined < limit) parts.push(`only ${count(joined)} on the nodes`);
  if (share > 0) parts.push(`${count(share)} guaranteed`);
  if (share > 0 && used > share) parts.push(`${count(used - share)} borrowed`);
  return parts.length === 0 ? undefined : parts.join(", ");
}

/** How full a quota is, of the slots that the team can get: its limit, or fewer if the nodes have fewer. */
export function quotaFraction({ used, limit, joined }: Quota): number {
  const most = Math.min(limit, joined ?? limit);
  return most === 0 ? 0 : used / most;
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

/** The smallest 1, 2 or 5 times a power of ten that is not less than the value: the end of an axis. */
export function axisTop(value: number): number {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  const top = ([1, 2, 5, 10].find((one) => one * unit >= value * 0.9999) ?? 10) * unit;
  return Number(top.toPrecision(1));
}

/** A person's hours on each day, or those of all others together. */
export interface PersonHours {
  key: string;
  name: string;
  total: number;
  /** One value for each day of the period. */
  hours: number[];
}

/** Number of colours for people; the last person may stand for several. */
export const PERSON_COLORS = ["bg-series-1", "bg-series-2", "bg-series-3", "bg-series-4", "bg-series-5", "bg-series-6", "bg-series-7", "bg-series-8"] as const;

/** The people who used most of a device, highest use first; from the eighth on they are combined. */
export function hoursByPerson(used: readonly DailyMemberUsage[], device: string, days: readonly string[]): PersonHours[] {
  const people = new Map<string, PersonHours>();
  for (const item of used) {
    if (item.device !== device) continue;
    const key = item.user ?? "";
    const person = people.get(key) ?? { key, name: personName(item), total: 0, hours: days.map(() => 0) };
    people.set(key, person);
    const day = days.indexOf(item.day);
    if (day < 0) continue;
    person.hours[day] = (person.hours[day] ?? 0) + item.slot_hours;
    person.total += item.slot_hours;
  }
  const sorted = [...people.values()].sort((one, other) => other.total - one.total);
  if (sorted.length <= PERSON_COLORS.length) return sorted;
  const shown = sorted.slice(0, PERSON_COLORS.length - 1);
  const rest = sorted.slice(shown.length);
  return [
    ...shown,
    {
      key: "others",
      name: `${rest.length} others`,
      total: rest.reduce((sum, { total }) => sum + total, 0),
      hours: days.map((_, day) => rest.reduce((sum, { hours }) => sum + (hours[day] ?? 0), 0)),
    },
  ];
}

/** The name of a person, also if their account is not known. */
export function personName({ user, name }: Pick<MemberUsage, "user" | "name">): string {
  return user === null ? "Unknown" : name;
}

/** Hours by day, person and device in full precision; the columns are those of `trainwright usage --csv`. */
export function memberUsageCsv(used: readonly DailyMemberUsage[]): string {
  return csvText([["day", "user", "name", "device", "slot_hours"], ...used.map((item) => [item.day, item.user, item.name, item.device, item.slot_hours])]);
}

/** Hours by day, person, device and run; the columns are those of `trainwright usage --csv-by-run`. */
export function runUsageCsv(used: readonly DailyRunUsage[]): string {
  const head = ["day", "user", "name", "device", "run", "run_name", "slot_hours"];
  return csvText([head, ...used.map((item) => [item.day, item.user, item.name, item.device, item.run, item.run_name, item.slot_hours])]);
}
