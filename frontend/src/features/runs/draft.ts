/** The unfinished configuration of a new run, kept in this tab for the person who writes it, so that a reload loses nothing. */
import type { SpecValues } from "@/lib/specForm";

/** Whose draft it is, and of which team. */
export interface Writer {
  person: string;
  team: string;
}

export interface Draft {
  /** When it was last changed, as ISO 8601. */
  at: string;
  values: SpecValues;
}

const DATASET = "data.dataset";

export function storedDraft(writer: Writer): Draft | null {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(keyOf(writer)) ?? "null");
    return isDraft(value) ? value : null;
  } catch {
    return null;
  }
}

export function storeDraft(writer: Writer, values: SpecValues): void {
  const draft: Draft = { at: new Date().toISOString(), values };
  sessionStorage.setItem(keyOf(writer), JSON.stringify(draft));
}

export function dropDraft(writer: Writer): void {
  sessionStorage.removeItem(keyOf(writer));
}

/** What of a draft is restored where ``start`` is filled in: all, what says nothing of another dataset, or, beside another run's configuration, nothing. */
export function restored(draft: Draft | null, start: SpecValues): SpecValues {
  if (draft === null || Object.keys(start).some((path) => path !== DATASET)) return {};
  const filled = Object.entries(draft.values).filter(([, text]) => text !== "");
  const other = start[DATASET] !== undefined && start[DATASET] !== draft.values[DATASET];
  return Object.fromEntries(other ? filled.filter(([path]) => !path.startsWith("data.")) : filled);
}

function isDraft(value: unknown): value is Draft {
  return typeof value === "object" && value !== null && "values" in value && typeof value.values === "object" && "at" in value;
}

function keyOf({ person, team }: Writer): string {
  return `trainwright.draft.${person}.${team}`;
}
