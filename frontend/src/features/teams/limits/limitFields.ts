/** The fields of the limit forms: their labels, and how their values are typed. */
import type { MemberLimits, Quota, TeamLimits } from "@/api/types";
import { DEVICE_LABELS } from "@/features/teams/usage/usageView";

type NumberField<Limits> = Extract<{ [Name in keyof Limits]-?: NonNullable<Limits[Name]> extends number ? Name : never }[keyof Limits], string>;

export interface LimitField<Name extends string> {
  name: Name;
  label: string;
  /** How many of the API's units one typed unit is. */
  unit?: number;
  /** Whether fractions have no meaning. */
  isCount?: true;
  /** Whether there must be a limit. */
  isRequired?: true;
  /** The largest number that the API takes, in typed units. */
  most: number;
}

const GIB = 2 ** 30;
const MAX_HOURS = 1_000_000_000;
const MAX_COUNT = 1_000_000;
const MAX_GIB = 2 ** 30;

/** The fields of a team's quota of one kind of device: its limit and its guaranteed share. */
export function quotaFields({ device }: Quota) {
  const slots = DEVICE_LABELS[device]?.slots ?? device;
  return {
    limit: { name: `${device}_limit`, label: `${slots} at once`, isCount: true, isRequired: true, most: MAX_COUNT },
    share: { name: `${device}_share`, label: `Guaranteed ${slots}`, isCount: true, isRequired: true, most: MAX_COUNT },
  } as const satisfies Record<string, LimitField<string>>;
}

export const FILES_FIELD: LimitField<"files"> = { name: "files", label: "Uploaded files, GiB", unit: GIB, isRequired: true, most: MAX_GIB };

export const TEAM_FIELDS: readonly LimitField<NumberField<TeamLimits>>[] = [
  { name: "gpu_hours_per_month", label: "GPU-hours a month", most: MAX_HOURS },
  { name: "cpu_hours_per_month", label: "CPU slot-hours a month", most: MAX_HOURS },
  { name: "storage_bytes", label: "Total storage, GiB", unit: GIB, most: MAX_GIB },
  { name: "concurrent_runs", label: "Runs at once", isCount: true, most: MAX_COUNT },
  { name: "queued_runs", label: "Queued runs", isCount: true, most: MAX_COUNT },
];

export const MEMBER_FIELDS: readonly LimitField<NumberField<MemberLimits>>[] = [
  { name: "gpus", label: "GPUs at once", isCount: true, most: MAX_COUNT },
  { name: "cpu_slots", label: "CPU slots at once", isCount: true, most: MAX_COUNT },
  { name: "gpu_hours_per_month", label: "GPU-hours a month", most: MAX_HOURS },
  { name: "cpu_hours_per_month", label: "CPU slot-hours a month", most: MAX_HOURS },
  { name: "storage_bytes", label: "Total storage, GiB", unit: GIB, most: MAX_GIB },
  { name: "concurrent_runs", label: "Runs at once", isCount: true, most: MAX_COUNT },
  { name: "queued_runs", label: "Queued runs", isCount: true, most: MAX_COUNT },
];

/** What a limit is typed as, to a millionth; empty for none. */
export function typedLimit(value: number | null | undefined, { unit = 1 }: Pick<LimitField<string>, "unit">): string {
  return value == null ? "" : String(Number((value / unit).toFixed(6)));
}

/** The limit that was typed: null for none, undefined for what is not a number of this field. */
export function parseLimit(typed: string, field: Pick<LimitField<string>, "unit" | "isCount" | "isRequired" | "most">): number | null | undefined {
  const { unit = 1, isCount, isRequired, most } = field;
  const text = typed.trim();
  if (text === "") return isRequired ? undefined : null;
  if (!(isCount ? /^\d+$/ : /^\d+(\.\d{1,6})?$/).test(text) || Number(text) > most) return undefined;
  return unit === 1 ? Number(text) : Math.round(Number(text) * unit);
}
