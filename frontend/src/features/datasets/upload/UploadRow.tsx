import { ErrorNote } from "@/components/ErrorNote";
import { Meter } from "@/components/Meter";
import { StateIcon, type Shape } from "@/components/StateIcon";
import { isUsable, type UploadRowData } from "@/features/datasets/upload/uploadRows";
import { replaceUpload, confirmSameFile, pause, resume } from "@/features/datasets/upload/uploadStore";
import { bytes, duration, moment } from "@/lib/format";

interface Props {
  row: UploadRowData;
  isSelected: boolean;
  onSelect: (use: boolean) => void;
  onRemove: () => void;
}

const STATE_STYLES: Record<UploadRowData["state"], { shape: Shape; label: string; color: string }> = {
  doubtful: { shape: "hollow-square", label: "Confirm", color: "text-warn" },
  queued: { shape: "hollow-circle", label: "Queued", color: "text-idle" },
  sending: { shape: "half-circle", label: "Uploading", color: "text-accent" },
  paused: { shape: "bars", label: "Paused", color: "text-idle" },
  failed: { shape: "cross", label: "Failed", color: "text-bad" },
  unfinished: { shape: "hollow-square", label: "Incomplete", color: "text-warn" },
  theirs: { shape: "half-circle", label: "Uploading", color: "text-idle" },
  complete: { shape: "tick", label: "Uploaded", color: "text-good" },
};

/** The upload resumes once the server responds. */
const OFFLINE_STYLE = { shape: "retry", label: "Reconnecting", color: "text-warn" } as const;

const ACTION_CLASS = "rounded-box text-accent hover:underline max-tablet:min-h-11 max-tablet:px-1";

/** One upload: its progress, speed, remaining time and actions. */
export function UploadRow({ row, isSelected, onSelect, onRemove }: Props) {
  const { shape, label, color } = row.isOffline ? OFFLINE_STYLE : STATE_STYLES[row.state];
  return (
    <li className="grid grid-cols-[minmax(0,1fr)_6.5rem_9rem_20rem_8rem] items-center gap-x-4 gap-y-1 px-4 py-1.5 max-desk:grid-cols-[minmax(0,1fr)_auto]">
      <label className="flex min-w-0 items-center gap-3">
        <input
          type="checkbox"
          checked={isSelected && isUsable(row)}
          disabled={!isUsable(row)}
          onChange={(event) => {
            onSelect(event.target.checked);
          }}
        />
        <span className="sr-only">use </span>
        <span className="min-w-0 break-all">{row.label}</span>
      </label>
      <span className={`inline-flex items-center gap-1.5 max-desk:justify-self-end ${color}`}>
        <StateIcon shape={shape} />
        {label}
      </span>
      {row.state === "complete" ? (
        <span className="max-desk:hidden" />
      ) : (
        <Meter
          fraction={row.bytes === 0 ? 1 : row.sent / row.bytes}
          label={`Upload of ${row.label}`}
          className="w-full max-desk:col-span-full max-desk:my-1"
        />
      )}
      <span className="text-soft">{progressText(row)}</span>
      <span className="flex justify-end gap-4">
        {(row.state === "sending" || row.state === "queued") && (
          <button
            type="button"
            className={ACTION_CLASS}
            onClick={() => {
              pause(row.key);
            }}
          >
            Pause <span className="sr-only">{row.label}</span>
          </button>
        )}
        {(row.state === "paused" || row.state === "failed") && (
          <button
            type="button"
            className={ACTION_CLASS}
            onClick={() => {
              resume(row.key);
            }}
          >
            {row.state === "paused" ? "Resume" : "Try again"}{" "}
            <span className="sr-only">{row.label}</span>
          </button>
        )}
        {isUsable(row) && (
          <button type="button" className={ACTION_CLASS} onClick={onRemove}>
            Remove <span className="sr-only">{row.label}</span>
          </button>
        )}
      </span>
      {row.state === "doubtful" && (
        <p className="col-span-full flex flex-wrap gap-x-4 gap-y-1">
          The server already has {bytes(row.sent)} of a file with this name and size. Is this the same file, unchanged?
          <button
            type="button"
            className={ACTION_CLASS}
            onClick={() => {
              confirmSameFile(row.key);
            }}
          >
            Yes, resume <span className="sr-only">with {row.label}</span>
          </button>
          <button
            type="button"
            className={ACTION_CLASS}
            onClick={() => {
              replaceUpload(row.key);
            }}
          >
            No, start over <span className="sr-only">with {row.label}</span>
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

function progressText({ state, sent, bytes: total, bytesPerSecond: speed, by, expires }: UploadRowData): string {
  const whose = by === null ? "" : `, by ${by}`;
  if (state === "complete") return expires === null ? bytes(total) : `${bytes(total)}${whose}, kept until ${moment(expires)}`;
  const part = `${bytes(sent)} of ${bytes(total)}`;
  if (state === "theirs") return `${part}${whose}.`;
  if (state === "unfinished") return `${part}. Choose the file again to resume.`;
  return speed === 0 ? part : `${part}, ${bytes(speed)}/s, ${duration((total - sent) / speed)} left`;
}
