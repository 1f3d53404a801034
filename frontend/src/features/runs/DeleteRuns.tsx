import { useQuery } from "@tanstack/react-query";
import { ApiError } from "@/api/errors";
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
  const { data: answers, error: uncounted } = useQuery(freedQuery(team, runs.map(({ id }) => id)));
  const known = answers !== undefined;
  const going = runs.flatMap((run) => {
    const answer = answers?.get(run.id);
    return answer === undefined || answer instanceof ApiError ? [] : [{ ...answer, run }];
  });
  const staying = runs.flatMap((run) => {
    const answer = answers?.get(run.id);
    return answer instanceof ApiError ? [{ run, why: answer.message }] : [];
  });
  const freed = going.reduce((sum, { bytes }) => sum + bytes, 0);
  const checkpoints = going.reduce((sum, { checkpoints }) => sum + checkpoints, 0);
  const what = going.length === 1 ? (going[0]?.run.name ?? "") : plural(known ? going.length : runs.length, "run");
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
                onConfirm(going.map(({ run }) => run.id));
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
        uncounted === null && <p role="status">Counting what this frees…</p>
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
      {uncounted !== null && <ErrorNote error={uncounted} />}
      {error !== null && error !== undefined && <ErrorNote error={error} />}
    </Dialog>
  );
}
