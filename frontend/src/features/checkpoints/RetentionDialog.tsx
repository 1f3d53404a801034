import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { RetainedCheckpoint, Retention } from "@/api/types";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { retain } from "@/features/checkpoints/queries";
import { bytes, count, plural } from "@/lib/format";

interface Props {
  team: string;
  runs: string[] | null;
  onClose: () => void;
}

const REASONS: Record<NonNullable<RetainedCheckpoint["kept"]>, string> = {
  newest: "among the newest",
  multiple: "a multiple of the steps",
  pinned: "pinned",
  downloading: "on their way to somebody",
  forked: "needed by a fork",
  live: "needed by a live run",
  export: "weights",
};

/** Which checkpoints to keep. It first only says what would go; the button that deletes comes with that answer. */
export function RetentionDialog({ team, runs, onClose }: Props) {
  const [last, setLast] = useState("2");
  const [every, setEvery] = useState("");
  const [exports, setExports] = useState(false);
  const client = useQueryClient();
  const wish = (dryRun: boolean): Retention => ({
    runs,
    keep_last: Number(last),
    keep_every_steps: every === "" ? null : Number(every),
    delete_exports: exports,
    dry_run: dryRun,
  });
  const ask = useMutation({ mutationFn: () => retain(team, wish(true)) });
  const act = useMutation({
    mutationFn: () => retain(team, wish(false)),
    onSuccess: async () => {
      ask.reset();
      await client.invalidateQueries({ predicate: ({ queryKey }) => queryKey.includes("checkpoints") || queryKey[0] === "team" });
    },
  });
  const answer = ask.data;
  const going = answer?.checkpoints.filter(({ kept }) => kept === null) ?? [];
  const done = act.data;
  const change = () => {
    ask.reset();
    act.reset();
  };
  return (
    <Dialog
      title={runs === null ? "Thin out the team’s checkpoints" : "Thin out this run’s checkpoints"}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>{done === undefined ? "Keep all" : "Close"}</Button>
          <Button type="submit" form="retention" disabled={ask.isPending}>
            What would go?
          </Button>
          {answer !== undefined && answer.freed.checkpoints > 0 && (
            <Button
              look="danger"
              disabled={act.isPending}
              onClick={() => {
                act.mutate();
              }}
            >
              Delete {plural(answer.freed.checkpoints, "checkpoint")}
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
          act.reset();
          ask.mutate();
        }}
      >
        <Field
          label="Newest states to keep of each run"
          help="A run that has not ended keeps two in any case. With 0, one that has ended loses every state: if it failed or was cancelled before it had weights, nothing is left to go on from."
        >
          {(control) => (
            <TextInput
              {...control}
              type="number"
              required
              min={0}
              max={10_000}
              value={last}
              onChange={(event) => {
                setLast(event.target.value);
                change();
              }}
            />
          )}
        </Field>
        <Field label="Also those at a multiple of so many steps" help="Empty: none.">
          {(control) => (
            <TextInput
              {...control}
              type="number"
              min={1}
              value={every}
              onChange={(event) => {
                setEvery(event.target.value);
                change();
              }}
            />
          )}
        </Field>
        <label className="flex items-center gap-2 text-text max-tablet:min-h-11">
          <input
            type="checkbox"
            checked={exports}
            onChange={(event) => {
              setExports(event.target.checked);
              change();
            }}
          />
          Older weights go too, but a run’s newest
        </label>
      </form>
      <p className="text-small">Pinned ones, those on their way to somebody, and those that a live run or a fork needs always stay.</p>
      <div role="status" className="flex flex-col gap-2">
        {done !== undefined && (
          <p className="text-text">
            {plural(done.freed.checkpoints, "checkpoint")} deleted; {bytes(done.freed.bytes)} are free with the next sweep.
          </p>
        )}
        {answer !== undefined && (
          <>
            <p className="font-medium text-text">
              {answer.freed.checkpoints === 0
                ? "Nothing would go."
                : `${plural(answer.freed.checkpoints, "checkpoint")} would go and free ${bytes(answer.freed.bytes)}.`}
            </p>
            <p className="text-small">{keptWords(answer.checkpoints)}</p>
            {going.length > 0 && (
              <div role="region" aria-label="What would go" tabIndex={0} className="max-h-40 overflow-y-auto rounded-box border">
              <ul className="text-small">
                {going.map(({ checkpoint }) => (
                  <li key={checkpoint.id} className="flex justify-between gap-4 border-b px-2 py-1 last:border-b-0">
                    <span className="min-w-0 truncate">
                      {checkpoint.run_name}, step {count(checkpoint.step)}
                      {checkpoint.kind === "export" && ", weights"}
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
      {(ask.error ?? act.error) !== null && <ErrorNote error={ask.error ?? act.error} />}
    </Dialog>
  );
}

/** `5 stay: 2 among the newest, 3 pinned.` */
function keptWords(checkpoints: readonly RetainedCheckpoint[]): string {
  const kept = checkpoints.flatMap(({ kept: why }) => why ?? []);
  const reasons = [...new Set(kept)].map((why) => `${count(kept.filter((one) => one === why).length)} ${REASONS[why]}`);
  return kept.length === 0 ? "" : `${count(kept.length)} ${kept.length === 1 ? "stays" : "stay"}: ${reasons.join(", ")}.`;
}
