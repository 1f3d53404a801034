import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Ellipsis, Pause, Play } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import { useMemo, useState } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Menu } from "@/components/Menu";
import { MenuAction } from "@/components/MenuAction";
import { DeleteRuns } from "@/features/runs/actions/DeleteRuns";
import { EditRun } from "@/features/runs/actions/EditRun";
import { RunTitle } from "@/features/runs/actions/RunTitle";
import { cancelRun, deleteRun, storeRun } from "@/features/runs/queries";
import { canPause, leavableNodes, moveRun, pauseRun, resumeRun } from "@/features/runs/actions/runRequests";
import { copyText } from "@/lib/copyText";
import { count } from "@/lib/format";
import { isFinal } from "@/lib/runs/runProgress";
import { useHotkeys } from "@/lib/hooks/useHotkeys";

interface Props {
  team: string;
  run: Run;
  /** Why the last action failed; null if it did not. */
  onRefused: (error: Error | null) => void;
  onDeleted: () => void;
}

/** Pause or resume as a button; less frequent actions are in the menu, and destructive ones ask first. */
export function RunActions({ team, run, onRefused, onDeleted }: Props) {
  const [dialog, setDialog] = useState<"cancel" | "delete" | "edit" | null>(null);
  const navigate = useNavigate();
  const client = useQueryClient();
  const final = isFinal(run.state);
  const close = () => {
    setDialog(null);
  };
  const updateRun = async (changed: Run) => {
    await storeRun(client, team, changed);
    void client.invalidateQueries({ queryKey: ["runs", team] });
  };
  const toggleMutation = useMutation({
    mutationFn: () => (run.state === "paused" ? resumeRun : pauseRun)(team, run.id),
    onMutate: () => {
      onRefused(null);
    },
    onSuccess: updateRun,
    onError: onRefused,
  });
  const move = useMutation({
    mutationFn: (node: string) => moveRun(team, run.id, node),
    onMutate: () => {
      onRefused(null);
    },
    onSuccess: updateRun,
    onError: onRefused,
  });
  const cancel = useMutation({
    mutationFn: () => cancelRun(team, run.id),
    onSuccess: async (cancelled) => {
      await updateRun(cancelled);
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
  const copyRun = (how: "like" | "fork") => () =>
    void navigate({ to: "/$team/runs/new", params: { team }, search: { [how]: run.id } });
  useHotkeys(
    useMemo(
      () => ({
        e: () => {
          setDialog("edit");
        },
      }),
      [],
    ),
  );
  return (
    <>
      {(run.state === "paused" || canPause(run)) && (
        <Button
          variant="primary"
          disabled={toggleMutation.isPending}
          onClick={() => {
            toggleMutation.mutate();
          }}
        >
          {run.state === "paused" ? <Play aria-hidden size={14} /> : <Pause aria-hidden size={14} />}
          {run.state === "paused" ? "Resume" : "Pause"}
        </Button>
      )}
      <Menu
        trigger={
          <Button aria-label="More actions">
            <Ellipsis aria-hidden size={16} />
          </Button>
        }
      >
        <MenuAction onSelect={copyRun("like")}>Clone run</MenuAction>
        {run.summary.step > 0 && <MenuAction onSelect={copyRun("fork")}>Fork from a checkpoint</MenuAction>}
        <MenuAction
          shortcut="e"
          onSelect={() => {
            setDialog("edit");
          }}
        >
          Edit name, tags and notes
        </MenuAction>
        {leavableNodes(run).map((node) => (
          <MenuAction
            key={node}
            onSelect={() => {
              move.mutate(node);
            }}
          >
            Move off {node}
          </MenuAction>
        ))}
        <MenuAction onSelect={() => void copyText(run.id)}>Copy run ID</MenuAction>
        <DropdownMenu.Separator className="my-1 border-t" />
        {!(run.state === "stopping" && run.verdict === "cancel") && (
          <MenuAction
            danger
            onSelect={() => {
              cancel.reset();
              remove.reset();
              setDialog(final ? "delete" : "cancel");
            }}
          >
            {final ? "Delete run" : "Cancel run"}
          </MenuAction>
        )}
      </Menu>
      {dialog === "cancel" && (
        <ConfirmDialog
          title={
            <>
              Cancel <RunTitle run={run} />?
            </>
          }
          consequence={cancelConsequence(run)}
          confirmLabel="Cancel run"
          cancelLabel={run.state === "queued" ? "Keep run" : "Keep running"}
          busy={cancel.isPending}
          error={cancel.error}
          onConfirm={() => {
            cancel.mutate();
          }}
          onClose={close}
        />
      )}
      {dialog === "delete" && (
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
      {dialog === "edit" && <EditRun team={team} run={run} onSaved={(saved) => void updateRun(saved)} onClose={close} />}
    </>
  );
}

function cancelConsequence(run: Run): string {
  const step = run.summary.step;
  if (step === 0) return "It has not completed a step yet, so nothing is lost.";
  const saved = "Its metrics and the checkpoints saved so far are kept.";
  if (run.state === "paused") return `It ends at step ${count(step)}. ${saved}`;
  return `It stops near step ${count(step)} without saving, and frees its slots. ${saved} To continue later, pause it instead.`;
}
