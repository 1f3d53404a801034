/** What the form of a team's limits edits. The API keeps slots, uploaded files and the other limits in three resources. */
import type { Quota, TeamLimits } from "@/api/types";
import { FILES_FIELD, quotaFields, TEAM_FIELDS, type LimitField } from "@/features/teams/limits/limitFields";
import { setTeamLimits } from "@/features/teams/limits/limitQueries";
import { setFileLimit, setQuota } from "@/features/teams/queries";

export interface CurrentLimits {
  quota: readonly Quota[];
  filesBytes: number;
  limits: TeamLimits;
}

export interface ChosenLimits {
  /** By the names of the fields; null for no limit. */
  values: Readonly<Record<string, number | null>>;
  priorities: Pick<TeamLimits, "editor_priority" | "owner_priority">;
}

export const PRIORITY_FIELDS = [
  ["editor_priority", "Editors"],
  ["owner_priority", "Owners"],
] as const;

/** The number fields of the form, in the order in which they are shown. */
export function limitGroups(quota: readonly Quota[]): { title: string; fields: readonly LimitField<string>[] }[] {
  const named = (...names: (typeof TEAM_FIELDS)[number]["name"][]) => TEAM_FIELDS.filter(({ name }) => names.includes(name));
  return [
    { title: "Slots", fields: quota.flatMap((one) => Object.values(quotaFields(one))) },
    { title: "Hours and runs", fields: named("gpu_hours_per_month", "cpu_hours_per_month", "concurrent_runs", "queued_runs") },
    { title: "Storage", fields: [FILES_FIELD, ...named("storage_bytes")] },
  ].filter(({ fields }) => fields.length > 0);
}

/** The current value of each field. */
export function currentValues({ quota, filesBytes, limits }: CurrentLimits): Record<string, number | null> {
  const values: Record<string, number | null> = { [FILES_FIELD.name]: filesBytes };
  for (const { name } of TEAM_FIELDS) values[name] = limits[name] ?? null;
  for (const one of quota) {
    const { limit, share } = quotaFields(one);
    values[limit.name] = one.limit;
    values[share.name] = one.guaranteed_slots;
  }
  return values;
}

/** Guaranteed shares above their limit, by the names of their fields. */
export function guaranteeProblems(quota: readonly Quota[], values: ChosenLimits["values"]): Record<string, string> {
  const tooMany = quota.map(quotaFields).filter(({ limit, share }) => (values[share.name] ?? 0) > (values[limit.name] ?? 0));
  return Object.fromEntries(tooMany.map(({ limit, share }) => [share.name, `At most the limit, “${limit.label}”.`]));
}

export function isSame(current: CurrentLimits, { values, priorities }: ChosenLimits): boolean {
  const before = currentValues(current);
  return Object.keys(before).every((name) => values[name] === before[name]) && hasPriorities(current.limits, priorities);
}

/** Saves what differs, one resource after another. */
export async function changeTeamLimits(
  team: string,
  current: CurrentLimits,
  { values, priorities }: ChosenLimits,
  onWarning: (warning: string) => void,
): Promise<void> {
  const before = currentValues(current);
  const differs = (name: string) => values[name] !== before[name];
  for (const one of current.quota) {
    const { limit, share } = quotaFields(one);
    if (!differs(limit.name) && !differs(share.name)) continue;
    const { warning } = await setQuota(team, one.device, values[limit.name] ?? 0, values[share.name] ?? 0);
    if (warning != null) onWarning(warning);
  }
  if (differs(FILES_FIELD.name)) await setFileLimit(team, values[FILES_FIELD.name] ?? 0);
  if (TEAM_FIELDS.some(({ name }) => differs(name)) || !hasPriorities(current.limits, priorities)) {
    const numbers = Object.fromEntries(TEAM_FIELDS.map(({ name }) => [name, values[name]]));
    await setTeamLimits(team, { ...current.limits, ...numbers, ...priorities });
  }
}

function hasPriorities(limits: TeamLimits, { editor_priority, owner_priority }: ChosenLimits["priorities"]): boolean {
  return limits.editor_priority === editor_priority && limits.owner_priority === owner_priority;
}
