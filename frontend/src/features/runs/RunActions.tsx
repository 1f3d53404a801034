import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Ellipsis, Pause, Play } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { useMemo, useState } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Menu } from "@/components/Menu";
import { MenuVerb } from "@/components/MenuVerb";
import { DeleteRuns } from "@/features/runs/DeleteRuns";
import { EditRun } from "@/features/runs/EditRun";
import { cancelRun, deleteRun, runQuery } from "@/features/runs/queries";
import { canPause, pauseRun, resumeRun } from "@/features/runs/verbs";
import { copyText } from "@/lib/copyText";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runProgress";
import { useHotkeys } from "@/lib/useHotkeys";

interface Props {
  team: string;
  run: Run;
  /** Why the last verb was refused; null: it was not. */
  onRefused: (error: Error | null) => void;
  onDeleted: () => void;
}

/** Pause or resume at hand; what is done more seldom is in the menu, and what cannot be undone asks first. */
export function RunActions({ team, run, onRefused, onDeleted }: Props) {
  const [asking, setAsking] = useState<"cancel" | "delete" | "edit" | null>(null);
  const navigate = useNavigate();
  const client = useQueryClient();
  const final = isFinal(run.state);
  const close = () => {
    setAsking(null);
  };
  const take = (answer: Run) => {
    client.setQueryData(runQuery(team, run.id).queryKey, answer);
    void client.invalidateQueries({ queryKey: ["runs", team] });
  };
  const hold = useMutation({
    mutationFn: () => (run.state === "paused" ? resumeRun : pauseRun)(team, run.id),
    onMutate: () => {
      onRefused(null);
    },
    onSuccess: take,
    onError: onRefused,
  });
  const cancel = useMutation({
    mutationFn: () => cancelRun(team, run.id),
    onSuccess: (answer) => {
      take(answer);
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
  const copy = (how: "like" | "fork") => () =>
    void navigate({ to: "/$team/runs/new", params: { team }, search: { [how]: run.id } });
  useHotkeys(
    useMemo(
      () => ({
        e: () => {
          setAsking("edit");
        },
      }),
      [],
    ),
  );
  return (
    <>
      {(run.state === "paused" || canPause(run)) && (
        <Button
          look="primary"
          disabled={hold.isPending}
          onClick={() => {
            hold.mutate();
          }}
        >
          {run.state === "paused" ? <Play aria-hidden size={14} /> : <Pause aria-hidden size={14} />}
          {run.state === "paused" ? "Resume" : "Pause"}
        </Button>
      )}
      <Menu
        trigger={
          <Button aria-label="More for this run">
            <Ellipsis aria-hidden size={16} />
          </Button>
        }
      >
        <MenuVerb onSelect={copy("like")}>New run like it</MenuVerb>
        {run.summary.step > 0 && <MenuVerb onSelect={copy("fork")}>Fork from a checkpoint</MenuVerb>}
        <MenuVerb
          shortcut="e"
          onSelect={() => {
            setAsking("edit");
          }}
        >
          Name, tags and notes
        </MenuVerb>
        <MenuVerb onSelect={() => void copyText(run.id)}>Copy its id</MenuVerb>
        <DropdownMenu.Separator className="my-1 border-t" />
        {!(run.state === "stopping" && run.verdict === "cancel") && (
          <MenuVerb
            danger
            onSelect={() => {
              cancel.reset();
              remove.reset();
              setAsking(final ? "delete" : "cancel");
            }}
          >
            {final ? "Delete run" : "Cancel run"}
          </MenuVerb>
        )}
      </Menu>
      {asking === "cancel" && (
        <ConfirmDialog
          title={`Cancel ${run.name}?`}
          consequence={cancelConsequence(run)}
          verb="Cancel run"
          keep="Let it run"
          busy={cancel.isPending}
          error={cancel.error}
          onConfirm={() => {
            cancel.mutate();
          }}
          onClose={close}
        />
      )}
      {asking === "delete" && (
        <DeleteRuns
          team={team}
          runs={[run]}
          busy={remove.isPending}
          error={remove.error}
          onConfirm={() => {
            remove.mutate();
          }}
          onClose={close}
        />
      )}
      {asking === "edit" && <EditRun team={team} run={run} onSaved={take} onClose={close} />}
    </>
  );
}

function cancelConsequence(run: Run): string {
  const step = run.summary.step;
  if (step === 0) return "It has made no step yet, so nothing is lost.";
  const saved = "Its numbers and the checkpoints saved so far stay.";
  if (run.state === "paused") return `It ends at step ${count(step)}. ${saved}`;
  return `It stops near step ${count(step)} without saving, and frees its slots. ${saved} To go on later, pause it instead.`;
}
