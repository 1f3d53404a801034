import { useQueries } from "@tanstack/react-query";
import { sentenceOf } from "@/api/errors";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { freedQuery } from "@/features/runs/bulk";
import { bytes, plural } from "@/lib/format";

interface Props {
  team: string;
  runs: readonly Run[];
  busy: boolean;
  error: unknown;
  onConfirm: (ids: string[]) => void;
  onClose: () => void;
}

/** Asks before runs are deleted, with what that would free by the API's own count, and which of them have to stay. */
export function DeleteRuns({ team, runs, busy, error, onConfirm, onClose }: Props) {
  const asked = useQueries({ queries: runs.map(({ id }) => freedQuery(team, id)) });
  const going = runs.filter((_, index) => asked[index]?.data !== undefined);
  const staying = runs.flatMap((run, index) => (asked[index]?.error == null ? [] : [{ run, why: sentenceOf(asked[index].error) }]));
  const known = going.length + staying.length === runs.length;
  const freed = asked.reduce((sum, { data }) => sum + (data?.bytes ?? 0), 0);
  const checkpoints = asked.reduce((sum, { data }) => sum + (data?.checkpoints ?? 0), 0);
  const what = going.length === 1 ? (going[0]?.name ?? "") : plural(known ? going.length : runs.length, "run");
  return (
    <Dialog
      title={known && going.length === 0 ? "None of these can be deleted" : `Delete ${what}?`}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Keep them</Button>
          {going.length > 0 && (
            <Button
              look="danger"
              disabled={busy || !known}
              onClick={() => {
                onConfirm(going.map(({ id }) => id));
              }}
            >
              Delete {plural(going.length, "run")}
            </Button>
          )}
        </>
      }
    >
      {known ? (
        going.length > 0 && (
          <p>
            This frees {bytes(freed)} with {plural(checkpoints, "checkpoint")}, and deletes charts, events and logs. It cannot be undone.
          </p>
        )
      ) : (
        <p role="status">Counting what this frees…</p>
      )}
      {staying.length > 0 && (
        <ul className="flex flex-col gap-1">
          {staying.map(({ run, why }) => (
            <li key={run.id}>
              <span className="font-medium text-text">{run.name} stays.</span> {why}
            </li>
          ))}
        </ul>
      )}
      {error !== null && error !== undefined && <ErrorNote error={error} />}
    </Dialog>
  );
}
