/**
 * The unfinished configuration of a new run, kept in this tab for the person who writes it, so that a reload loses nothing.
 * What is written from another run, as its copy or its fork, is a draft of its own beside that of a run from nothing.
 */
import type { SpecValues } from "@/lib/specForm";

/** Whose draft it is, of which team, and of what. */
export interface Writer {
  person: string;
  team: string;
  /** The run that it began from, and how: `like.run_1`, `fork.run_1`; undefined: from none. */
  origin?: string | undefined;
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

/**
 * The fields where ``start`` is filled in and a draft was found: of a draft from the same origin all, even what was
 * emptied; of one from nothing what says nothing of another dataset, or, beside another run's configuration, nothing.
 */
export function continued({ origin }: Writer, draft: Draft | null, start: SpecValues): SpecValues {
  if (origin === undefined) return { ...restored(draft, start), ...start };
  return { ...start, ...draft?.values };
}

function restored(draft: Draft | null, start: SpecValues): SpecValues {
  if (draft === null || Object.keys(start).some((path) => path !== DATASET)) return {};
  const filled = Object.entries(draft.values).filter(([, text]) => text !== "");
  const other = start[DATASET] !== undefined && start[DATASET] !== draft.values[DATASET];
  return Object.fromEntries(other ? filled.filter(([path]) => !path.startsWith("data.")) : filled);
}

function isDraft(value: unknown): value is Draft {
  return typeof value === "object" && value !== null && "values" in value && typeof value.values === "object" && "at" in value;
}

function keyOf({ person, team, origin }: Writer): string {
  return ["trainwright.draft", person, team, ...(origin === undefined ? [] : [origin])].join(".");
}
