import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Download, Ellipsis, Pin } from "lucide-react";
import { useState } from "react";
import type { Checkpoint } from "@/api/types";
import { Bytes } from "@/components/Bytes";
import { ErrorNote } from "@/components/ErrorNote";
import { Menu } from "@/components/Menu";
import { MenuAction } from "@/components/MenuAction";
import { ShortId } from "@/components/ShortId";
import { StateIcon } from "@/components/StateIcon";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { DeleteCheckpoint } from "@/features/checkpoints/DeleteCheckpoint";
import { archiveUrl, checkpointKeys, pinCheckpoint } from "@/features/checkpoints/queries";
import { SnippetDialog } from "@/features/checkpoints/SnippetDialog";
import { groupText, lowestLoss, type CheckpointGroup } from "@/features/checkpoints/checkpointGroups";
import { contentText, KIND_LABELS, originText } from "@/features/checkpoints/checkpointText";
import { count, decimal } from "@/lib/format";
import { useCanEdit } from "@/lib/permissions";

interface Props {
  team: string;
  groups: readonly CheckpointGroup[];
  onFork: (checkpoint: Checkpoint) => void;
}

/** Checkpoints with their content, validation loss, origin and actions, run by run. */
export function CheckpointTable({ team, groups, onFork }: Props) {
  const [dialog, setDialog] = useState<{ what: "snippets" | "delete"; checkpoint: Checkpoint } | null>(null);
  const client = useQueryClient();
  const canEdit = useCanEdit();
  const pin = useMutation({
    mutationFn: (checkpoint: Checkpoint) => pinCheckpoint(team, checkpoint, !checkpoint.pinned),
    onSuccess: ({ run }) => refresh(run),
  });
  return (
    <>
      {pin.error !== null && (
        <div className="mb-3">
          <ErrorNote error={pin.error} />
        </div>
      )}
      <Table
        label="Checkpoints"
        grouped
        head={
          <>
            <Th className="text-right">step</Th>
            <Th className="max-tablet:hidden">validation loss</Th>
            <Th>content</Th>
            <Th className="max-tablet:hidden">integrity</Th>
            <Th className="max-tablet:hidden">origin</Th>
            <Th className="text-right max-tablet:hidden">size</Th>
            <Th className="max-tablet:hidden">saved</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {groups.map((group) => {
          const lowest = lowestLoss(group);
          return (
            <tbody key={group.run?.id ?? ""} className="border-b last:border-b-0">
              {group.run !== undefined && (
                <tr className="border-b bg-raised">
                  <th scope="rowgroup" colSpan={8} className="h-8 px-4 py-1 text-left font-normal max-tablet:h-11">
                    <span className="flex flex-wrap items-baseline gap-x-3">
                      <Link
                        to="/$team/runs/$runId/$tab"
                        params={{ team, runId: group.run.id, tab: "checkpoints" }}
                        className="min-w-0 font-medium wrap-anywhere hover:text-accent"
                      >
                        {group.run.name}
                      </Link>
                      {!group.run.hasUniqueName && <ShortId id={group.run.id} />}
                      <span className="text-small text-soft">{groupText(group)}</span>
                    </span>
                  </th>
                </tr>
              )}
              {group.checkpoints.map((checkpoint) => (
              <tr key={checkpoint.id} className={rowClass}>
                <Td className="text-right font-medium">{count(checkpoint.step)}</Td>
                <Td className="whitespace-nowrap max-tablet:hidden">
                  <ValidationLoss checkpoint={checkpoint} isLowest={checkpoint.validation_loss === lowest} />
                </Td>
                <Td>
                  <span className="block">{KIND_LABELS[checkpoint.kind]}</span>
                  <span className="block text-small text-soft max-tablet:hidden">{contentText(checkpoint)}</span>
                  <span className="block text-small tablet:hidden">
                    <Bytes value={checkpoint.bytes} />, <Time at={checkpoint.created} />
                    {checkpoint.pinned && <span className="text-accent">, pinned</span>}
                  </span>
                  {typeof checkpoint.validation_loss === "number" && (
                    <span className="block text-small tablet:hidden">
                      validation <ValidationLoss checkpoint={checkpoint} isLowest={checkpoint.validation_loss === lowest} />
                    </span>
                  )}
                </Td>
                <Td className="max-tablet:hidden">
                  <VerificationStatus valid={checkpoint.valid} />
                </Td>
                <Td className="whitespace-nowrap text-soft max-tablet:hidden">{originText(checkpoint)}</Td>
                <Td className="text-right whitespace-nowrap max-tablet:hidden">
                  <Bytes value={checkpoint.bytes} />
                </Td>
                <Td className="max-tablet:hidden">
                  <Time at={checkpoint.created} />
                </Td>
                <Td>
                  <span className="flex items-center justify-end gap-2 whitespace-nowrap max-tablet:gap-0">
                    <span className="flex items-center gap-2">
                      {(canEdit || checkpoint.pinned) && (
                        <button
                          type="button"
                          aria-pressed={checkpoint.pinned}
                          aria-label={`${checkpoint.pinned ? "Pinned" : "Pin"}: step ${count(checkpoint.step)}, ${KIND_LABELS[checkpoint.kind]}`}
                          title={checkpoint.pinned ? "Pinned: protected from deletion" : "Pin to protect from deletion"}
                          disabled={!canEdit || pin.isPending}
                          className={`inline-flex h-7 items-center gap-1 rounded-box px-1.5 text-small enabled:hover:bg-raised max-tablet:hidden ${checkpoint.pinned ? "text-accent" : "text-soft"}`}
                          onClick={() => {
                            pin.mutate(checkpoint);
                          }}
                        >
                          <Pin aria-hidden size={13} fill={checkpoint.pinned ? "currentColor" : "none"} />
                          {checkpoint.pinned ? "Pinned" : "Pin"}
                        </button>
                      )}
                      <a
                        href={archiveUrl(team, checkpoint.run, checkpoint.id)}
                        download
                        className="inline-flex items-center gap-1.5 text-accent hover:underline max-tablet:size-11 max-tablet:justify-center"
                      >
                        <Download aria-hidden size={14} />
                        <span className="max-tablet:sr-only">
                          Download<span className="max-tablet:hidden"> .tar</span>
                        </span>
                        <span className="sr-only">
                          {" "}
                          of step {count(checkpoint.step)}, {KIND_LABELS[checkpoint.kind]}
                        </span>
                      </a>
                    </span>
                    <Menu
                      trigger={
                        <button
                          type="button"
                          aria-label={`More actions for step ${count(checkpoint.step)}, ${KIND_LABELS[checkpoint.kind]}`}
                          className="inline-grid size-7 place-items-center rounded-box text-soft hover:bg-raised hover:text-text max-tablet:size-11"
                        >
                          <Ellipsis aria-hidden size={16} />
                        </button>
                      }
                    >
                      {canEdit && (
                        <MenuAction
                          onPhonesOnly
                          onSelect={() => {
                            pin.mutate(checkpoint);
                          }}
                        >
                          {checkpoint.pinned ? "Unpin" : "Pin to protect from deletion"}
                        </MenuAction>
                      )}
                      <MenuAction
                        onSelect={() => {
                          setDialog({ what: "snippets", checkpoint });
                        }}
                      >
                        Download with curl or Python
                      </MenuAction>
                      {canEdit && checkpoint.kind === "state" && checkpoint.valid && (
                        <MenuAction
                          onSelect={() => {
                            onFork(checkpoint);
                          }}
                        >
                          Fork from this checkpoint
                        </MenuAction>
                      )}
                      {canEdit && (
                        <MenuAction
                          danger
                          onSelect={() => {
                            setDialog({ what: "delete", checkpoint });
                          }}
                        >
                          Delete
                        </MenuAction>
                      )}
                    </Menu>
                  </span>
                </Td>
              </tr>
              ))}
            </tbody>
          );
        })}
      </Table>
      {dialog?.what === "snippets" && <SnippetDialog team={team} checkpoint={dialog.checkpoint} onClose={close} />}
      {dialog?.what === "delete" && (
        <DeleteCheckpoint
          team={team}
          checkpoint={dialog.checkpoint}
          onDeleted={() => {
            close();
            void refresh(dialog.checkpoint.run);
          }}
          onClose={close}
        />
      )}
    </>
  );

  function close(): void {
    setDialog(null);
  }

  async function refresh(run = ""): Promise<void> {
    await Promise.all(checkpointKeys(team, run).map((queryKey) => client.invalidateQueries({ queryKey })));
  }
}

/** In the table the numbers end below each other, whatever is said after them. */
const LOSS_CLASS = "inline-block tabular-nums tablet:min-w-[6ch] tablet:text-right";

/** The loss of the last validation at or before the checkpoint's step. */
function ValidationLoss({ checkpoint, isLowest }: { checkpoint: Checkpoint; isLowest: boolean }) {
  const { validation_loss: loss, validation_step: at, step } = checkpoint;
  if (typeof loss !== "number") return <span className={LOSS_CLASS} title="No validation before this step">–</span>;
  return (
    <span className="inline-flex items-baseline gap-x-1.5 whitespace-nowrap">
      <span className={`${LOSS_CLASS} ${isLowest ? "font-medium" : ""}`}>{decimal(loss)}</span>
      {typeof at === "number" && at !== step && <span className="text-small text-soft"> at step {count(at)}</span>}
      {isLowest && <span className="text-small text-good"> lowest</span>}
    </span>
  );
}

function VerificationStatus({ valid }: { valid: boolean }) {
  return (
    <span className={`inline-flex items-center gap-1.5 ${valid ? "text-good" : "text-bad"}`}>
      <StateIcon shape={valid ? "tick" : "cross"} />
      {valid ? "verified" : "damaged"}
    </span>
  );
}
