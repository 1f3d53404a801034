import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { cancelRun, deleteRun, runQuery } from "@/features/runs/queries";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runProgress";

interface Props {
  team: string;
  run: Run;
  onDeleted: () => void;
}

/** Cancel while a run lives and is not stopping already, delete once it has ended; each asks first and says what it does. */
export function RunActions({ team, run, onDeleted }: Props) {
  const [asking, setAsking] = useState<"cancel" | "delete" | null>(null);
  const client = useQueryClient();
  const final = isFinal(run.state);
  const close = () => {
    setAsking(null);
  };
  const cancel = useMutation({
    mutationFn: () => cancelRun(team, run.id),
    onSuccess: (answer) => {
      client.setQueryData(runQuery(team, run.id).queryKey, answer);
      close();
    },
  });
  const remove = useMutation({
    mutationFn: () => deleteRun(team, run.id),
    onSuccess: async () => {
      onDeleted();
      await client.invalidateQueries({ queryKey: ["runs", team] });
    },
  });
  const verb = final ? "delete" : "cancel";
  const act = final ? remove : cancel;
  if (run.state === "stopping") return null;
  return (
    <>
      <Button
        onClick={() => {
          act.reset();
          setAsking(verb);
        }}
      >
        {final ? "Delete" : "Cancel"}
      </Button>
      {asking === verb && (
        <ConfirmDialog
          title={final ? `Delete ${run.name}?` : `Cancel ${run.name}?`}
          consequence={final ? DELETE : cancelConsequence(run)}
          verb={final ? "Delete run" : "Cancel run"}
          keep={final ? "Keep it" : "Let it run"}
          busy={act.isPending}
          error={act.error}
          onConfirm={() => {
            act.mutate();
          }}
          onClose={close}
        />
      )}
    </>
  );
}

const DELETE =
  "This deletes the run with its charts, events, logs and checkpoints, and frees their space. It cannot be undone.";

function cancelConsequence(run: Run): string {
  const step = run.summary.step;
  if (step === 0) return "It has made no step yet, so nothing is lost.";
  return `It stops near step ${count(step)} and frees its slots. Its numbers and the checkpoints saved so far stay.`;
}
