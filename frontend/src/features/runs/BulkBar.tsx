import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { BulkAction, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { ErrorNote } from "@/components/ErrorNote";
import { BulkRefusals } from "@/features/runs/BulkRefusals";
import { sendBulk, StoppedError, takenBy, type BulkVerb } from "@/features/runs/bulk";
import { DeleteRuns } from "@/features/runs/DeleteRuns";
import { TagRuns } from "@/features/runs/TagRuns";
import { count, plural } from "@/lib/format";

interface Props {
  team: string;
  runs: readonly Run[];
  mayEdit: boolean;
  onCompare: ((runs: readonly string[]) => void) | undefined;
  onClear: () => void;
}

const MOST_COMPARED = 100;

/** What can be done with the runs that are chosen. A verb is offered while it is for some of them. */
export function BulkBar({ team, runs, mayEdit, onCompare, onClear }: Props) {
  const [asking, setAsking] = useState<"cancel" | "delete" | "tag" | null>(null);
  const client = useQueryClient();
  const act = useMutation({
    mutationFn: (actions: readonly BulkAction[]) => sendBulk(team, actions),
    onSuccess: () => {
      setAsking(null);
    },
    // Some are done where the others were not even asked.
    onSettled: () => client.invalidateQueries({ queryKey: ["runs", team] }),
  });
  const results = act.error instanceof StoppedError ? act.error.results : act.data;
  const refused = [...new Map(results?.filter(({ done }) => !done).map((one) => [one.run, one])).values()];
  const asked = new Set(results?.map(({ run }) => run)).size;
  const send = (verb: BulkVerb) => {
    act.mutate([{ verb, runs: takenBy(verb, runs).map(({ id }) => id), tags: [] }]);
  };
  const ask = (verb: typeof asking) => () => {
    act.reset();
    setAsking(verb);
  };
  const close = () => {
    setAsking(null);
  };
  const dialog = { team, busy: act.isPending, error: act.error, onClose: close };
  if (runs.length === 0 && refused.length === 0) return null;
  return (
    <section aria-label="Chosen runs" className="flex w-full flex-col gap-2">
      {runs.length > 0 && (
        <div className="flex flex-wrap items-center gap-2">
          <span className="mr-1">{count(runs.length)} selected</span>
          {onCompare !== undefined && runs.length > 1 && runs.length <= MOST_COMPARED && (
            <Button
              look="primary"
              onClick={() => {
                onCompare(runs.map(({ id }) => id));
              }}
            >
              Compare
            </Button>
          )}
          {onCompare !== undefined && runs.length > MOST_COMPARED && (
            <span className="text-small text-soft">Compare takes up to {count(MOST_COMPARED)} runs.</span>
          )}
          {mayEdit && (
            <>
              <Verb word="Pause" all={runs} taken={takenBy("pause", runs)} busy={act.isPending} onPress={() => { send("pause"); }} />
              <Verb word="Resume" all={runs} taken={takenBy("resume", runs)} busy={act.isPending} onPress={() => { send("resume"); }} />
              <Verb word="Cancel" all={runs} taken={takenBy("cancel", runs)} busy={act.isPending} onPress={ask("cancel")} />
              <Button onClick={ask("tag")}>Tag</Button>
              <Verb word="Delete" all={runs} taken={takenBy("delete", runs)} busy={act.isPending} onPress={ask("delete")} />
            </>
          )}
          <Button look="quiet" onClick={onClear}>
            Clear selection
          </Button>
        </div>
      )}
      {act.error !== null && asking === null && <ErrorNote error={act.error} />}
      <BulkRefusals refused={refused} asked={asked} runs={runs} onClose={() => { act.reset(); }} />
      {asking === "cancel" && (
        <ConfirmDialog
          title={`Cancel ${plural(takenBy("cancel", runs).length, "run")}?`}
          consequence="Each stops near the step that it is at and frees its slots. Numbers and checkpoints saved so far stay."
          verb="Cancel runs"
          keep="Let them run"
          onConfirm={() => {
            send("cancel");
          }}
          {...dialog}
        />
      )}
      {asking === "delete" && (
        <DeleteRuns
          runs={takenBy("delete", runs)}
          onConfirm={(ids) => {
            act.mutate([{ verb: "delete", runs: ids, tags: [] }]);
          }}
          {...dialog}
        />
      )}
      {asking === "tag" && (
        <TagRuns
          runs={runs}
          onSave={(actions) => {
            act.mutate(actions);
          }}
          {...dialog}
        />
      )}
    </section>
  );
}

interface VerbProps {
  word: string;
  all: readonly Run[];
  taken: readonly Run[];
  busy: boolean;
  onPress: () => void;
}

/** Says how many it is for, where not for all. */
function Verb({ word, all, taken, busy, onPress }: VerbProps) {
  if (taken.length === 0) return null;
  return (
    <Button disabled={busy} onClick={onPress}>
      {word}
      {taken.length < all.length && <span className="text-soft">{count(taken.length)}</span>}
    </Button>
  );
}
