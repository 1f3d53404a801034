import { useQuery } from "@tanstack/react-query";
import { ApiError } from "@/api/errors";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { RunTitle } from "@/features/runs/actions/RunTitle";
import { freedSpaceQuery } from "@/features/runs/actions/bulkRequests";
import { bytes, plural } from "@/lib/format";

interface Props {
  team: string;
  runs: readonly Run[];
  busy: boolean;
  error: unknown;
  onConfirm: (ids: string[]) => void;
  onClose: () => void;
}

/** Asks before runs are deleted, with the space this frees and the runs that cannot be deleted. */
export function DeleteRuns({ team, runs, busy, error, onConfirm, onClose }: Props) {
  const { data: responses, error: countError } = useQuery(freedSpaceQuery(team, runs.map(({ id }) => id)));
  const isCounted = responses !== undefined;
  const deletable = runs.flatMap((run) => {
    const response = responses?.get(run.id);
    return response === undefined || response instanceof ApiError ? [] : [{ ...response, run }];
  });
  const undeletable = runs.flatMap((run) => {
    const response = responses?.get(run.id);
    return response instanceof ApiError ? [{ run, why: response.message }] : [];
  });
  const freed = deletable.reduce((sum, { bytes }) => sum + bytes, 0);
  const checkpoints = deletable.reduce((sum, { checkpoints }) => sum + checkpoints, 0);
  const only = deletable.length === 1 ? deletable[0]?.run : runs.length === 1 ? runs[0] : undefined;
  return (
    <Dialog
      title={
        isCounted && deletable.length === 0 ? (
          "None of these can be deleted"
        ) : (
          <>Delete {only === undefined ? plural(isCounted ? deletable.length : runs.length, "run") : <RunTitle run={only} />}?</>
        )
      }
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          {deletable.length > 0 && (
            <Button
              variant="danger"
              disabled={busy || !isCounted}
              onClick={() => {
                onConfirm(deletable.map(({ run }) => run.id));
              }}
            >
              Delete {only === undefined ? plural(deletable.length, "run") : "run"}
            </Button>
          )}
        </>
      }
    >
      {isCounted ? (
        deletable.length > 0 && (
          <p>
            This frees {bytes(freed)} ({plural(checkpoints, "checkpoint")}) and deletes charts, events and logs. This cannot be undone.
          </p>
        )
      ) : (
        countError === null && <p role="status">Calculating freed space…</p>
      )}
      {undeletable.length > 0 && (
        <ul className="flex flex-col gap-1">
          {undeletable.map(({ run, why }) => (
            <li key={run.id}>
              <span className="font-medium text-text">{run.name} cannot be deleted.</span> {why}
            </li>
          ))}
        </ul>
      )}
      {countError !== null && <ErrorNote error={countError} />}
      {error !== null && error !== undefined && <ErrorNote error={error} />}
    </Dialog>
  );
}
