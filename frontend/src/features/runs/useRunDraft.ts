import { useState } from "react";
import { continued, dropDraft, storeDraft, storedDraft, type Writer } from "@/features/runs/draft";
import { randomId } from "@/lib/randomId";
import { specOf, valuesOf, type Json, type SpecField, type SpecValues } from "@/lib/specForm";
import { readYaml, rewritten, writeYaml, type SpecText } from "@/lib/specYaml";

export type View = "form" | "YAML";

interface Draft {
  values: SpecValues;
  /** As it is written, while the view is YAML. */
  text: string | null;
  read: SpecText | null;
  /** What would be sent; null while the text cannot be read. */
  spec: Record<string, Json> | null;
  touched: ReadonlySet<string>;
  /** When the draft that was found was left; null where none is restored. */
  restoredFrom: string | null;
  /** Why the view cannot be changed. */
  stay: string | null;
  /** Of the request that the draft is now: another one after every change. */
  key: string;
}

/**
 * The configuration that is being written, as fields or as text. There is one truth: what is written as text is read
 * into the fields as soon as they can hold it, and the text begins with what the fields hold.
 */
export function useRunDraft(writer: Writer, fields: readonly SpecField[], fresh: SpecValues, start: SpecValues, view: View) {
  const [draft, setDraft] = useState<Draft>(() => first(writer, fields, fresh, start, view));
  // Comments and order of the text survive a visit to the form.
  const [lastText, setLastText] = useState<string | null>(null);

  function set(values: SpecValues, touched: ReadonlySet<string>): void {
    storeDraft(writer, values);
    setDraft({ ...draft, ...written(values, fields, draft.text), values, touched, key: randomId(), stay: null });
  }

  return {
    ...draft,
    change: (changed: SpecValues): void => {
      // A source belongs to the kind that it was chosen for, a version to its dataset.
      const source: SpecValues = "data.tokenizer.kind" in changed ? { "data.tokenizer.source": "" } : {};
      const version: SpecValues = "data.dataset" in changed ? { "data.version": "" } : {};
      set({ ...draft.values, ...source, ...version, ...changed }, new Set([...draft.touched, ...Object.keys(changed)]));
    },
    /** All fields at once. */
    replace: (values: SpecValues): void => {
      set(values, new Set(Object.keys(values)));
    },
    write: (text: string): void => {
      const read = readYaml(text);
      const held = read.spec === null ? null : valuesOf(read.spec, fields);
      const values = held?.strangers.length === 0 ? held.values : draft.values;
      if (values !== draft.values) storeDraft(writer, values);
      setLastText(text);
      setDraft({ ...draft, values, text, read, spec: read.spec, key: randomId(), stay: null });
    },
    /** Whether the view could be changed. */
    show: (next: View): boolean => {
      if (next === "YAML") {
        const spec = specOf(draft.values, fields);
        const text = lastText === null ? writeYaml(spec) : rewritten(lastText, spec);
        setDraft({ ...draft, text, read: readYaml(text), spec, stay: null });
        return true;
      }
      const stay = whyStay(draft, fields);
      setDraft({ ...draft, ...(stay === null ? { text: null, read: null, spec: specOf(draft.values, fields) } : {}), stay });
      return stay === null;
    },
    beginAnew: (): void => {
      dropDraft(writer);
      setLastText(null);
      setDraft({ ...draft, ...written(fresh, fields, draft.text), values: fresh, touched: new Set(), restoredFrom: null, key: randomId(), stay: null });
    },
  };
}

function first(writer: Writer, fields: readonly SpecField[], fresh: SpecValues, start: SpecValues, view: View): Draft {
  const found = storedDraft(writer);
  const values = { ...fresh, ...continued(writer, found, start) };
  const tells = Object.entries(values).some(([path, text]) => path !== "data.dataset" && text !== (fresh[path] ?? ""));
  return {
    values,
    ...written(values, fields, view === "YAML" ? "" : null),
    touched: new Set(),
    restoredFrom: tells && found !== null ? found.at : null,
    stay: null,
    key: randomId(),
  };
}

/** What the fields say, and its text where the view is text. */
function written(values: SpecValues, fields: readonly SpecField[], before: string | null): Pick<Draft, "text" | "read" | "spec"> {
  const spec = specOf(values, fields);
  if (before === null) return { text: null, read: null, spec };
  const text = before === "" ? writeYaml(spec) : rewritten(before, spec);
  return { text, read: readYaml(text), spec };
}

function whyStay({ read }: Draft, fields: readonly SpecField[]): string | null {
  if (read === null) return null;
  if (read.spec === null) return "The text cannot be read yet, so the form cannot show it. Mend it first.";
  const { strangers } = valuesOf(read.spec, fields);
  return strangers.length === 0 ? null : `The form has no field for ${strangers.join(", ")}. Remove or rename it first.`;
}
