/** The unfinished configuration of a new run, kept in this tab so that a reload loses nothing. */
import type { SpecValues } from "@/lib/specForm";

export function storedDraft(team: string): SpecValues {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(keyOf(team)) ?? "{}");
    return typeof value === "object" && value !== null ? (value as SpecValues) : {};
  } catch {
    return {};
  }
}

export function storeDraft(team: string, values: SpecValues): void {
  sessionStorage.setItem(keyOf(team), JSON.stringify(values));
}

function keyOf(team: string): string {
  return `trainwright.draft.${team}`;
}
