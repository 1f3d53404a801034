/**
 * The unsaved configuration of a new run, kept in this tab for its user, so that a reload loses nothing. A clone
 * or fork has a separate draft.
 */
import type { SpecValues } from "@/features/runs/spec/specFields";

/** The user, team and origin of a draft. */
export interface DraftKey {
  userId: string;
  team: string;
  /** The run that it was copied from, and how: `like.run_1`, `fork.run_1`; undefined if none. */
  origin?: string | undefined;
}

export interface Draft {
  /** When it was last changed, as ISO 8601. */
  at: string;
  values: SpecValues;
}

const DATASET = "data.dataset";
/** Fields that the form fills in if they are empty. */
const PROPOSED = new Set(["name", DATASET]);

export function storedDraft(writer: DraftKey): Draft | null {
  try {
    const value: unknown = JSON.parse(sessionStorage.getItem(keyOf(writer)) ?? "null");
    return isDraft(value) ? value : null;
  } catch {
    return null;
  }
}

export function storeDraft(writer: DraftKey, values: SpecValues): void {
  const draft: Draft = { at: new Date().toISOString(), values };
  try {
    sessionStorage.setItem(keyOf(writer), JSON.stringify(draft));
  } catch {
    // The storage is full or switched off. The form works without it; only a reload loses the draft.
  }
}

export function deleteDraft(writer: DraftKey): void {
  try {
    sessionStorage.removeItem(keyOf(writer));
  } catch {
    // The storage is switched off, so there is no draft.
  }
}

/**
 * The initial fields, given ``prefill`` and a stored draft. A draft from the same origin replaces all fields,
 * including cleared ones. A draft without origin is merged only if nothing but the dataset is prefilled, and
 * without its data fields if the dataset differs.
 */
export function mergeDraft({ origin }: DraftKey, draft: Draft | null, prefill: SpecValues): SpecValues {
  if (origin === undefined) return { ...restorableValues(draft, prefill), ...prefill };
  return { ...prefill, ...draft?.values };
}

function restorableValues(draft: Draft | null, prefill: SpecValues): SpecValues {
  if (draft === null || Object.keys(prefill).some((path) => path !== DATASET)) return {};
  // A cleared field stays empty: the initial model's value would make it another model.
  const kept = Object.entries(draft.values).filter(([path, text]) => text !== "" || !PROPOSED.has(path));
  const other = prefill[DATASET] !== undefined && prefill[DATASET] !== draft.values[DATASET];
  return Object.fromEntries(other ? kept.filter(([path]) => !path.startsWith("data.")) : kept);
}

function isDraft(value: unknown): value is Draft {
  return typeof value === "object" && value !== null && "values" in value && typeof value.values === "object" && "at" in value;
}

function keyOf({ userId, team, origin }: DraftKey): string {
  return ["trainwright.draft", userId, team, ...(origin === undefined ? [] : [origin])].join(".");
}
