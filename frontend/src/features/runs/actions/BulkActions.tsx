import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { BulkAction, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { ErrorNote } from "@/components/ErrorNote";
import { BulkFailures } from "@/features/runs/actions/BulkFailures";
import { sendBulk, PartialBulkError, eligibleRuns, type RunAction } from "@/features/runs/actions/bulkRequests";
import { DeleteRuns } from "@/features/runs/actions/DeleteRuns";
import { TagRuns } from "@/features/runs/actions/TagRuns";
import { count, plural } from "@/lib/format";

interface Props {
  team: string;
  runs: readonly Run[];
  canEdit: boolean;
  onCompare: ((runs: readonly string[]) => void) | undefined;
  onClear: () => void;
}

const MAX_COMPARED = 100;

/** Actions on the selected runs. An action is offered if it applies to some of them. */
export function BulkActions({ team, runs, canEdit, onCompare, onClear }: Props) {
  const [open, setOpen] = useState<"cancel" | "delete" | "tag" | null>(null);
  const client = useQueryClient();
  const bulkMutation = useMutation({
    mutationFn: (actions: readonly BulkAction[]) => sendBulk(team, actions),
    onSuccess: () => {
      setOpen(null);
    },
    // Some requests may have succeeded even if a later one failed.
    onSettled: () => client.invalidateQueries({ queryKey: ["runs", team] }),
  });
  const results = bulkMutation.error instanceof PartialBulkError ? bulkMutation.error.results : bulkMutation.data;
  const refused = [...new Map(results?.filter(({ done }) => !done).map((result) => [result.run, result])).values()];
  const requestedCount = new Set(results?.map(({ run }) => run)).size;
  const send = (action: RunAction) => {
    bulkMutation.mutate([{ action, runs: eligibleRuns(action, runs).map(({ id }) => id), tags: [] }]);
  };
  const openDialog = (dialog: typeof open) => () => {
    bulkMutation.reset();
    setOpen(dialog);
  };
  const close = () => {
    setOpen(null);
  };
  const dialog = { team, busy: bulkMutation.isPending, error: bulkMutation.error, onClose: close };
  if (runs.length === 0 && refused.length === 0) return null;
  return (
    <section aria-label="Selected runs" className="flex w-full flex-col gap-2">
      {runs.length > 0 && (
        <div className="flex flex-wrap items-center gap-2">
          <span className="mr-1">{count(runs.length)} selected</span>
          {onCompare !== undefined && runs.length > 1 && runs.length <= MAX_COMPARED && (
            <Button
              variant="primary"
              onClick={() => {
                onCompare(runs.map(({ id }) => id));
              }}
            >
              Compare
            </Button>
          )}
          {onCompare !== undefined && runs.length > MAX_COMPARED && (
            <span className="text-small text-soft">You can compare up to {count(MAX_COMPARED)} runs.</span>
          )}
          {canEdit && (
            <>
              <BulkButton label="Pause" all={runs} eligible={eligibleRuns("pause", runs)} busy={bulkMutation.isPending} onPress={() => { send("pause"); }} />
              <BulkButton label="Resume" all={runs} eligible={eligibleRuns("resume", runs)} busy={bulkMutation.isPending} onPress={() => { send("resume"); }} />
              <BulkButton label="Cancel" all={runs} eligible={eligibleRuns("cancel", runs)} busy={bulkMutation.isPending} onPress={openDialog("cancel")} />
              <Button onClick={openDialog("tag")}>Tag</Button>
              <BulkButton label="Delete" all={runs} eligible={eligibleRuns("delete", runs)} busy={bulkMutation.isPending} onPress={openDialog("delete")} />
            </>
          )}
          <Button variant="quiet" onClick={onClear}>
            Clear selection
          </Button>
        </div>
      )}
      {bulkMutation.error !== null && open === null && <ErrorNote error={bulkMutation.error} />}
      <BulkFailures failures={refused} requestedCount={requestedCount} runs={runs} onClose={() => { bulkMutation.reset(); }} />
      {open === "cancel" && (
        <ConfirmDialog
          title={`Cancel ${plural(eligibleRuns("cancel", runs).length, "run")}?`}
          consequence="Each run stops near its current step and frees its slots. Metrics and checkpoints saved so far are kept."
          confirmLabel="Cancel runs"
          cancelLabel={runs.some(({ state }) => state === "queued") ? "Keep runs" : "Keep running"}
          onConfirm={() => {
            send("cancel");
          }}
          {...dialog}
        />
      )}
      {open === "delete" && (
        <DeleteRuns
          runs={eligibleRuns("delete", runs)}
          onConfirm={(ids) => {
            bulkMutation.mutate([{ action: "delete", runs: ids, tags: [] }]);
          }}
          {...dialog}
        />
      )}
      {open === "tag" && (
        <TagRuns
          runs={runs}
          onSave={(actions) => {
            bulkMutation.mutate(actions);
          }}
          {...dialog}
        />
      )}
    </section>
  );
}

interface BulkButtonProps {
  label: string;
  all: readonly Run[];
  eligible: readonly Run[];
  busy: boolean;
  onPress: () => void;
}

/** Shows how many runs it applies to, if not to all. */
function BulkButton({ label, all, eligible, busy, onPress }: BulkButtonProps) {
  if (eligible.length === 0) return null;
  return (
    <Button disabled={busy} onClick={onPress}>
      {label}
      {eligible.length < all.length && <span className="text-soft">{count(eligible.length)}</span>}
    </Button>
  );
}
