import { useState } from "react";
import { mergeDraft, deleteDraft, storeDraft, storedDraft, type DraftKey } from "@/features/runs/form/draft";
import { randomId } from "@/lib/randomId";
import { specOf, valuesOf, type Json, type SpecField, type SpecValues } from "@/features/runs/spec/specFields";
import { readYaml, updateYaml, writeYaml, type ParsedSpec } from "@/features/runs/spec/specYaml";

export type View = "form" | "YAML";

interface DraftState {
  /** What the user chose; without what is only proposed. */
  values: SpecValues;
  /** What the text has besides, such as a name: it goes on following the other fields until the user changes it. */
  proposed: SpecValues;
  /** The text, while the view is YAML. */
  text: string | null;
  read: ParsedSpec | null;
  /** The spec to send; null while the text cannot be parsed. */
  spec: Record<string, Json> | null;
  touched: ReadonlySet<string>;
  /** When the restored draft was last changed; null if none was restored. */
  restoredFrom: string | null;
  /** Why the view cannot be changed. */
  viewError: string | null;
  /** Idempotency key of the current draft; replaced after every change. */
  key: string;
}

interface Given {
  draftKey: DraftKey;
  fields: readonly SpecField[];
  initial: SpecValues;
  prefill: SpecValues;
  /** Values for what the user has not chosen, given the others. */
  propose: (values: SpecValues) => SpecValues;
  view: View;
}

/**
 * The configuration being edited, as fields or as text. Fields and text stay in sync: text is parsed into the
 * fields whenever possible, and the text view starts from the fields.
 */
export function useRunDraft(given: Given) {
  const { draftKey, fields, initial } = given;
  const [draft, setDraft] = useState<DraftState>(() => initialState(given));
  // Keeps comments and order of the text while the form is shown.
  const [lastText, setLastText] = useState<string | null>(null);

  function update(values: SpecValues, touched: ReadonlySet<string>): void {
    storeDraft(draftKey, values);
    setDraft({ ...draft, ...derived(given, values, draft.text), values, touched, key: randomId(), viewError: null });
  }

  return {
    ...draft,
    change: (changed: SpecValues): void => {
      // A source belongs to its tokenizer kind, and a version to its dataset.
      const source: SpecValues = "data.tokenizer.kind" in changed ? { "data.tokenizer.source": "" } : {};
      const version: SpecValues = "data.dataset" in changed ? { "data.version": "" } : {};
      update({ ...draft.values, ...source, ...version, ...changed }, new Set([...draft.touched, ...Object.keys(changed)]));
    },
    /** Replaces all fields. */
    replace: (values: SpecValues): void => {
      update(values, new Set(Object.keys(values)));
    },
    write: (text: string): void => {
      const read = readYaml(text);
      const parsed = read.spec === null ? null : valuesOf(read.spec, fields);
      const values = parsed?.unknownPaths.length === 0 ? withoutProposed(parsed.values, draft.proposed) : draft.values;
      if (values !== draft.values) storeDraft(draftKey, values);
      setLastText(text);
      setDraft({ ...draft, values, text, read, spec: read.spec, key: randomId(), viewError: null });
    },
    /** Returns whether the view could be changed. */
    show: (next: View): boolean => {
      if (next === "YAML") {
        setDraft({ ...draft, ...derived(given, draft.values, lastText ?? ""), viewError: null });
        return true;
      }
      const viewError = viewErrorOf(draft, fields);
      setDraft({ ...draft, ...(viewError === null ? { text: null, read: null, spec: specOf(draft.values, fields) } : {}), viewError });
      return viewError === null;
    },
    discard: (): void => {
      deleteDraft(draftKey);
      setLastText(null);
      setDraft({ ...draft, ...derived(given, initial, draft.text), values: initial, touched: new Set(), restoredFrom: null, key: randomId(), viewError: null });
    },
  };
}

function initialState(given: Given): DraftState {
  const { draftKey, initial, prefill, view } = given;
  const found = storedDraft(draftKey);
  const values = { ...initial, ...mergeDraft(draftKey, found, prefill) };
  const hasContent = Object.entries(values).some(([path, text]) => path !== "data.dataset" && text !== (initial[path] ?? ""));
  return {
    values,
    ...derived(given, values, view === "YAML" ? "" : null),
    touched: new Set(),
    restoredFrom: hasContent && found !== null ? found.at : null,
    viewError: null,
    key: randomId(),
  };
}

/** The spec of the fields, and its text if the view is text, which also has the proposed values. */
function derived({ fields, propose }: Given, values: SpecValues, before: string | null): Pick<DraftState, "text" | "read" | "spec" | "proposed"> {
  if (before === null) return { text: null, read: null, spec: specOf(values, fields), proposed: {} };
  const proposed = propose(values);
  const spec = specOf({ ...proposed, ...values }, fields);
  const text = before === "" ? writeYaml(spec) : updateYaml(before, spec);
  return { text, read: readYaml(text), spec, proposed };
}

function withoutProposed(values: SpecValues, proposed: SpecValues): SpecValues {
  return Object.fromEntries(Object.entries(values).filter(([path, text]) => proposed[path] !== text));
}

function viewErrorOf({ read }: DraftState, fields: readonly SpecField[]): string | null {
  if (read === null) return null;
  if (read.spec === null) return "The text is not valid yet, so the form cannot show it. Fix it first.";
  const { unknownPaths } = valuesOf(read.spec, fields);
  return unknownPaths.length === 0 ? null : `The form has no field for ${unknownPaths.join(", ")}. Remove or rename it first.`;
}
