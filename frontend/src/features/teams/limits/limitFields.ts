/** The fields of the limit forms: their labels, and how their values are typed. */
import type { MemberLimits, TeamLimits } from "@/api/types";

type NumberField<Limits> = Extract<{ [Name in keyof Limits]-?: NonNullable<Limits[Name]> extends number ? Name : never }[keyof Limits], string>;

export interface LimitField<Name extends string> {
  name: Name;
  label: string;
  /** How many of the API's units one typed unit is. */
  unit?: number;
  /** Whether fractions have no meaning. */
  isCount?: true;
  /** The largest number that the API takes, in typed units. */
  most: number;
}

const GIB = 2 ** 30;
const MOST_HOURS = 1_000_000_000;
const MOST_COUNT = 1_000_000;
const MOST_GIB = 2 ** 30;

export const TEAM_FIELDS: readonly LimitField<NumberField<TeamLimits>>[] = [
  { name: "gpu_hours_per_month", label: "GPU-hours a month", most: MOST_HOURS },
  { name: "cpu_hours_per_month", label: "CPU slot-hours a month", most: MOST_HOURS },
  { name: "storage_bytes", label: "Total storage, GiB", unit: GIB, most: MOST_GIB },
  { name: "concurrent_runs", label: "Runs at once", isCount: true, most: MOST_COUNT },
  { name: "queued_runs", label: "Queued runs", isCount: true, most: MOST_COUNT },
];

export const MEMBER_FIELDS: readonly LimitField<NumberField<MemberLimits>>[] = [
  { name: "gpus", label: "GPUs at once", isCount: true, most: MOST_COUNT },
  { name: "cpu_slots", label: "CPU slots at once", isCount: true, most: MOST_COUNT },
  { name: "gpu_hours_per_month", label: "GPU-hours a month", most: MOST_HOURS },
  { name: "cpu_hours_per_month", label: "CPU slot-hours a month", most: MOST_HOURS },
  { name: "storage_bytes", label: "Total storage, GiB", unit: GIB, most: MOST_GIB },
  { name: "concurrent_runs", label: "Runs at once", isCount: true, most: MOST_COUNT },
  { name: "queued_runs", label: "Queued runs", isCount: true, most: MOST_COUNT },
];

/** What a limit is typed as; empty for none. */
export function typedLimit(value: number | null | undefined, { unit = 1 }: Pick<LimitField<string>, "unit">): string {
  return value == null ? "" : String(value / unit);
}

/** The limit that was typed: null for none, undefined for what is no number of this field. */
export function parseLimit(typed: string, { unit = 1, isCount, most }: Pick<LimitField<string>, "unit" | "isCount" | "most">): number | null | undefined {
  const text = typed.trim();
  if (text === "") return null;
  if (!(isCount ? /^\d+$/ : /^\d+(\.\d{1,6})?$/).test(text) || Number(text) > most) return undefined;
  return unit === 1 ? Number(text) : Math.round(Number(text) * unit);
}
