import { useState } from "react";
import type { BulkAction, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { parseTags } from "@/features/runs/actions/bulkRequests";
import { count, plural } from "@/lib/format";

interface Props {
  runs: readonly Run[];
  busy: boolean;
  error: unknown;
  onSave: (actions: BulkAction[]) => void;
  onClose: () => void;
}

/** Adds tags to runs and removes them. */
export function TagRuns({ runs, busy, error, onSave, onClose }: Props) {
  const [text, setText] = useState("");
  const [removed, setRemoved] = useState<ReadonlySet<string>>(new Set());
  const tagCounts = new Map<string, number>();
  for (const tag of runs.flatMap(({ tags }) => tags)) tagCounts.set(tag, (tagCounts.get(tag) ?? 0) + 1);
  const ids = runs.map(({ id }) => id);
  const added = parseTags(text);
  const actions: BulkAction[] = [
    ...(removed.size > 0 ? [{ action: "untag" as const, runs: ids, tags: [...removed] }] : []),
    ...(added.length > 0 ? [{ action: "tag" as const, runs: ids, tags: added }] : []),
  ];
  return (
    <Dialog
      title={`Tags of ${runs.length === 1 ? (runs[0]?.name ?? "") : plural(runs.length, "run")}`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            variant="primary"
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
      <Field label="New tags" help="Lowercase letters, digits and . _ -, separated by spaces.">
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
              if (event.key === "Enter" && !busy && actions.length > 0) onSave(actions);
            }}
          />
        )}
      </Field>
      {tagCounts.size > 0 && (
        <fieldset className="flex flex-wrap gap-x-4 gap-y-1">
          <legend className="mb-1 font-medium text-text">Current tags</legend>
          {[...tagCounts].sort().map(([tag, number]) => (
            <label key={tag} className="flex items-center gap-1.5 max-tablet:min-h-11">
              <input
                type="checkbox"
                checked={!removed.has(tag)}
                onChange={(event) => {
                  const next = new Set(removed);
                  if (event.target.checked) next.delete(tag);
                  else next.add(tag);
                  setRemoved(next);
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
