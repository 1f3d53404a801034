import { useState } from "react";
import type { BulkAction, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { tagsOf } from "@/features/runs/bulk";
import { count, plural } from "@/lib/format";

interface Props {
  runs: readonly Run[];
  busy: boolean;
  error: unknown;
  onSave: (actions: BulkAction[]) => void;
  onClose: () => void;
}

/** Gives tags to many runs and takes them away. */
export function TagRuns({ runs, busy, error, onSave, onClose }: Props) {
  const [text, setText] = useState("");
  const [leaving, setLeaving] = useState<ReadonlySet<string>>(new Set());
  const worn = new Map<string, number>();
  for (const tag of runs.flatMap(({ tags }) => tags)) worn.set(tag, (worn.get(tag) ?? 0) + 1);
  const ids = runs.map(({ id }) => id);
  const coming = tagsOf(text);
  const actions: BulkAction[] = [
    ...(leaving.size > 0 ? [{ verb: "untag" as const, runs: ids, tags: [...leaving] }] : []),
    ...(coming.length > 0 ? [{ verb: "tag" as const, runs: ids, tags: coming }] : []),
  ];
  return (
    <Dialog
      title={`Tags of ${runs.length === 1 ? (runs[0]?.name ?? "") : plural(runs.length, "run")}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Leave as they are</Button>
          <Button
            look="primary"
            disabled={busy || actions.length === 0}
            onClick={() => {
              onSave(actions);
            }}
          >
            Save tags
          </Button>
        </>
      }
    >
      <Field label="New tags" help="Small letters, digits and . _ -, with a space between them.">
        {(control) => (
          <TextInput
            {...control}
            autoComplete="off"
            spellCheck={false}
            maxLength={400}
            value={text}
            onChange={(event) => {
              setText(event.target.value);
            }}
            onKeyDown={(event) => {
              if (event.key === "Enter" && actions.length > 0) onSave(actions);
            }}
          />
        )}
      </Field>
      {worn.size > 0 && (
        <fieldset className="flex flex-wrap gap-x-4 gap-y-1">
          <legend className="mb-1 font-medium text-text">Keep</legend>
          {[...worn].sort().map(([tag, number]) => (
            <label key={tag} className="flex items-center gap-1.5 max-tablet:min-h-11">
              <input
                type="checkbox"
                checked={!leaving.has(tag)}
                onChange={(event) => {
                  const next = new Set(leaving);
                  if (event.target.checked) next.delete(tag);
                  else next.add(tag);
                  setLeaving(next);
                }}
              />
              {tag}
              {number < runs.length && <span className="text-small">{count(number)}</span>}
            </label>
          ))}
        </fieldset>
      )}
      {error !== null && error !== undefined && <ErrorNote error={error} />}
    </Dialog>
  );
}
