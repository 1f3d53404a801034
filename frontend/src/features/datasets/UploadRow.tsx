import { ErrorNote } from "@/components/ErrorNote";
import { Meter } from "@/components/Meter";
import { StateIcon, type Shape } from "@/components/StateIcon";
import { isUsable, type TrayRow } from "@/features/datasets/tray";
import { beginAnew, goOn, pause, resume } from "@/features/datasets/uploads";
import { bytes, duration, moment } from "@/lib/format";

interface Props {
  row: TrayRow;
  used: boolean;
  onUse: (use: boolean) => void;
  onRemove: () => void;
}

const LOOKS: Record<TrayRow["state"], { shape: Shape; word: string; color: string }> = {
  doubtful: { shape: "hollow-square", word: "Unsure", color: "text-warn" },
  queued: { shape: "hollow-circle", word: "Waiting", color: "text-idle" },
  sending: { shape: "half-circle", word: "Uploading", color: "text-accent" },
  paused: { shape: "bars", word: "Paused", color: "text-idle" },
  failed: { shape: "cross", word: "Stopped", color: "text-bad" },
  unfinished: { shape: "hollow-square", word: "Unfinished", color: "text-warn" },
  theirs: { shape: "half-circle", word: "Underway", color: "text-idle" },
  complete: { shape: "tick", word: "Here", color: "text-good" },
};

/** It goes on by itself once somebody answers. */
const CUT = { shape: "retry", word: "Waiting for the connection", color: "text-warn" } as const;

const ACTION = "rounded-box text-accent hover:underline max-tablet:min-h-11 max-tablet:px-1";

/** A file on its way in: how far, how fast, for how long still; and what can be done about it. */
export function UploadRow({ row, used, onUse, onRemove }: Props) {
  const { shape, word, color } = row.cut ? CUT : LOOKS[row.state];
  return (
    <li className="grid grid-cols-[minmax(0,1fr)_6.5rem_9rem_20rem_8rem] items-center gap-x-4 gap-y-1 px-4 py-1.5 max-desk:grid-cols-[minmax(0,1fr)_auto]">
      <label className="flex min-w-0 items-center gap-3">
        <input
          type="checkbox"
          checked={used && isUsable(row)}
          disabled={!isUsable(row)}
          onChange={(event) => {
            onUse(event.target.checked);
          }}
        />
        <span className="sr-only">use </span>
        <span className="min-w-0 break-all">{row.name}</span>
      </label>
      <span className={`inline-flex items-center gap-1.5 max-desk:justify-self-end ${color}`}>
        <StateIcon shape={shape} />
        {word}
      </span>
      {row.state === "complete" ? (
        <span className="max-desk:hidden" />
      ) : (
        <Meter
          fraction={row.bytes === 0 ? 1 : row.sent / row.bytes}
          label={`Upload of ${row.name}`}
          className="w-full max-desk:col-span-full max-desk:my-1"
        />
      )}
      <span className="text-soft">{progress(row)}</span>
      <span className="flex justify-end gap-4">
        {(row.state === "sending" || row.state === "queued") && (
          <button
            type="button"
            className={ACTION}
            onClick={() => {
              pause(row.key);
            }}
          >
            Pause <span className="sr-only">{row.name}</span>
          </button>
        )}
        {(row.state === "paused" || row.state === "failed") && (
          <button
            type="button"
            className={ACTION}
            onClick={() => {
              resume(row.key);
            }}
          >
            {row.state === "paused" ? "Resume" : "Try again"}{" "}
            <span className="sr-only">{row.name}</span>
          </button>
        )}
        {isUsable(row) && (
          <button type="button" className={ACTION} onClick={onRemove}>
            Remove <span className="sr-only">{row.name}</span>
          </button>
        )}
      </span>
      {row.state === "doubtful" && (
        <p className="col-span-full flex flex-wrap gap-x-4 gap-y-1">
          The server has {bytes(row.sent)} of a file of this name and size. Is this the same file, unchanged?
          <button
            type="button"
            className={ACTION}
            onClick={() => {
              goOn(row.key);
            }}
          >
            Yes, go on <span className="sr-only">with {row.name}</span>
          </button>
          <button
            type="button"
            className={ACTION}
            onClick={() => {
              beginAnew(row.key);
            }}
          >
            No, begin anew <span className="sr-only">with {row.name}</span>
          </button>
        </p>
      )}
      {row.error !== null && (
        <div className="col-span-full">
          <ErrorNote error={row.error} />
        </div>
      )}
    </li>
  );
}

function progress({ state, sent, bytes: total, bytesPerSecond: speed, by, expires }: TrayRow): string {
  const whose = by === null ? "" : `, of ${by}`;
  if (state === "complete") return expires === null ? bytes(total) : `${bytes(total)}${whose}, kept until ${moment(expires)}`;
  const part = `${bytes(sent)} of ${bytes(total)}`;
  if (state === "theirs") return `${part}${whose}.`;
  if (state === "unfinished") return `${part}. Choose the file again to go on.`;
  return speed === 0 ? part : `${part}, ${bytes(speed)}/s, ${duration((total - sent) / speed)} left`;
}
