import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { RetentionEntry, Retention } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { applyRetention } from "@/features/checkpoints/queries";
import { bytes, count, decimal, plural } from "@/lib/format";

interface Props {
  team: string;
  runs: string[] | null;
  onClose: () => void;
}

const KEPT_REASONS: Record<NonNullable<RetentionEntry["kept"]>, string> = {
  newest: "among the newest",
  multiple: "at a multiple of the given steps",
  pinned: "pinned",
  downloading: "being downloaded",
  forked: "needed by a fork",
  live: "needed by an unfinished run",
  export: "exported weights",
};

/** Deletes old checkpoints by a retention rule. A preview comes first; the delete button appears with its result. */
export function CleanUpDialog({ team, runs, onClose }: Props) {
  const [keepLast, setKeepLast] = useState("2");
  const [keepEvery, setKeepEvery] = useState("");
  const [deleteExports, setDeleteExports] = useState(false);
  const client = useQueryClient();
  const retention = (dryRun: boolean): Retention => ({
    runs,
    keep_last: Number(keepLast),
    keep_every_steps: keepEvery === "" ? null : Number(keepEvery),
    delete_exports: deleteExports,
    dry_run: dryRun,
  });
  const preview = useMutation({ mutationFn: () => applyRetention(team, retention(true)) });
  const apply = useMutation({
    mutationFn: () => applyRetention(team, retention(false)),
    onSuccess: async () => {
      preview.reset();
      await client.invalidateQueries({ predicate: ({ queryKey }) => queryKey.includes("checkpoints") || queryKey[0] === "team" });
    },
  });
  const response = preview.data;
  const toDelete = response?.checkpoints.filter(({ kept }) => kept === null) ?? [];
  const applied = apply.data;
  const reset = () => {
    preview.reset();
    apply.reset();
  };
  return (
    <Dialog
      title={runs === null ? "Clean up the team's checkpoints" : "Clean up this run's checkpoints"}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>{applied === undefined ? "Cancel" : "Close"}</Button>
          <Button type="submit" form="retention" disabled={preview.isPending}>
            Preview
          </Button>
          {response !== undefined && response.freed.checkpoints > 0 && (
            <Button
              variant="danger"
              disabled={apply.isPending}
              onClick={() => {
                apply.mutate();
              }}
            >
              Delete {plural(response.freed.checkpoints, "checkpoint")}
            </Button>
          )}
        </>
      }
    >
      <form
        id="retention"
        className="flex flex-col gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          apply.reset();
          preview.mutate();
        }}
      >
        <Field
          label="Newest checkpoints to keep per run"
          help="Unfinished runs always keep two. With 0, ended runs keep none, so you cannot continue a failed or cancelled run in a fork."
        >
          {(control) => (
            <TextInput
              {...control}
              type="number"
              required
              min={0}
              max={10_000}
              value={keepLast}
              onChange={(event) => {
                setKeepLast(event.target.value);
                reset();
              }}
            />
          )}
        </Field>
        <Field label="Also keep one every … steps" help="For example, with 1,000: steps 1,000, 2,000 and so on. Leave empty to keep only the newest.">
          {(control) => (
            <TextInput
              {...control}
              type="number"
              min={1}
              value={keepEvery}
              onChange={(event) => {
                setKeepEvery(event.target.value);
                reset();
              }}
            />
          )}
        </Field>
        <label className="flex items-center gap-2 text-text max-tablet:min-h-11">
          <input
            type="checkbox"
            checked={deleteExports}
            onChange={(event) => {
              setDeleteExports(event.target.checked);
              reset();
            }}
          />
          Also delete exported weights, except the newest of each run
        </label>
      </form>
      <p className="text-small">Checkpoints are always kept if they are pinned, are being downloaded, or are needed by an unfinished run or a fork.</p>
      <div role="status" className="flex flex-col gap-2">
        {applied !== undefined && (
          <p className="text-text">
            {plural(applied.freed.checkpoints, "checkpoint")} deleted. {bytes(applied.freed.bytes)} will be freed in a moment.
          </p>
        )}
        {response !== undefined && (
          <>
            <p className="font-medium text-text">
              {response.freed.checkpoints === 0
                ? "Nothing would be deleted."
                : `${plural(response.freed.checkpoints, "checkpoint")} would be deleted, freeing ${bytes(response.freed.bytes)}.`}
            </p>
            <p className="text-small">{keptText(response.checkpoints)}</p>
            {toDelete.length > 0 && (
              <div role="region" aria-label="Checkpoints to delete" tabIndex={0} className="max-h-40 overflow-y-auto rounded-box border">
              <ul className="text-small">
                {toDelete.map(({ checkpoint }) => (
                  <li key={checkpoint.id} className="flex justify-between gap-4 border-b px-2 py-1 last:border-b-0">
                    <span className="min-w-0 truncate">
                      {checkpoint.run_name}, step {count(checkpoint.step)}
                      {checkpoint.kind === "export" && ", exported weights"}
                      {typeof checkpoint.validation_loss === "number" && `, validation loss ${decimal(checkpoint.validation_loss)}`}
                    </span>
                    <span className="whitespace-nowrap">{bytes(checkpoint.bytes)}</span>
                  </li>
                ))}
              </ul>
              </div>
            )}
          </>
        )}
      </div>
      {(preview.error ?? apply.error) !== null && <ErrorNote error={preview.error ?? apply.error} />}
    </Dialog>
  );
}

/** `5 kept: 2 among the newest, 3 pinned.` */
function keptText(checkpoints: readonly RetentionEntry[]): string {
  const kept = checkpoints.flatMap(({ kept: why }) => why ?? []);
  const reasons = [...new Set(kept)].map((why) => `${count(kept.filter((value) => value === why).length)} ${KEPT_REASONS[why]}`);
  return kept.length === 0 ? "" : `${count(kept.length)} kept: ${reasons.join(", ")}.`;
}
