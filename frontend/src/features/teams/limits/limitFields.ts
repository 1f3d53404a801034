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
}

const GIB = 2 ** 30;

export const TEAM_FIELDS: readonly LimitField<NumberField<TeamLimits>>[] = [
  { name: "gpu_hours_per_month", label: "GPU-hours a month" },
  { name: "cpu_hours_per_month", label: "CPU slot-hours a month" },
  { name: "storage_bytes", label: "Total storage, GiB", unit: GIB },
  { name: "concurrent_runs", label: "Runs at once", isCount: true },
  { name: "queued_runs", label: "Queued runs", isCount: true },
];

export const MEMBER_FIELDS: readonly LimitField<NumberField<MemberLimits>>[] = [
  { name: "gpus", label: "GPUs at once", isCount: true },
  { name: "cpu_slots", label: "CPU slots at once", isCount: true },
  { name: "gpu_hours_per_month", label: "GPU-hours a month" },
  { name: "cpu_hours_per_month", label: "CPU slot-hours a month" },
  { name: "concurrent_runs", label: "Runs at once", isCount: true },
  { name: "queued_runs", label: "Queued runs", isCount: true },
];

/** What a limit is typed as; empty for none. */
export function typedLimit(value: number | null | undefined, { unit = 1 }: Pick<LimitField<string>, "unit">): string {
  return value == null ? "" : String(value / unit);
}

/** The limit that was typed: null for none, undefined for what is no number of this field. */
export function parseLimit(typed: string, { unit = 1, isCount }: Pick<LimitField<string>, "unit" | "isCount">): number | null | undefined {
  const text = typed.trim();
  if (text === "") return null;
  if (!(isCount ? /^\d{1,12}$/ : /^\d{1,12}(\.\d{1,6})?$/).test(text)) return undefined;
  return unit === 1 ? Number(text) : Math.round(Number(text) * unit);
}
