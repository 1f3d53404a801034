import { Pause, Play } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Meter } from "@/components/Meter";
import { trayTotal, type TrayRow } from "@/features/datasets/tray";
import { UploadRow } from "@/features/datasets/UploadRow";
import { pause, resume } from "@/features/datasets/uploads";
import { bytes, duration, plural } from "@/lib/format";

interface Props {
  rows: readonly TrayRow[];
  isUsed: (row: TrayRow) => boolean;
  onUse: (row: TrayRow, use: boolean) => void;
  onRemove: (row: TrayRow) => void;
}

/** The files that no dataset uses yet: on their way, unfinished, or here. */
export function UploadTray({ rows, isUsed, onUse, onRemove }: Props) {
  const [asked, setAsked] = useState<TrayRow | null>(null);
  const total = trayTotal(rows);
  const moving = rows.filter(({ state }) => state === "sending" || state === "queued");
  const still = rows.filter(({ state }) => state === "paused");
  return (
    <section aria-label="Uploads" className="panel mt-3">
      <div className="flex min-h-11 flex-wrap items-center gap-x-4 gap-y-2 border-b px-4 py-1.5">
        <h2 className="font-medium">{plural(total.files, "file")}</h2>
        <Meter fraction={total.bytes === 0 ? 1 : total.sent / total.bytes} label="All uploads" className="w-36" />
        <span className="text-soft">{summary()}</span>
        <span className="ml-auto flex gap-2">
          {moving.length > 0 && (
            <Button
              onClick={() => {
                for (const { key } of moving) pause(key);
              }}
            >
              <Pause aria-hidden size={14} />
              Pause all
            </Button>
          )}
          {moving.length === 0 && still.length > 0 && (
            <Button
              onClick={() => {
                for (const { key } of still) resume(key);
              }}
            >
              <Play aria-hidden size={14} />
              Resume all
            </Button>
          )}
        </span>
      </div>
      <div role="region" aria-label="Files" tabIndex={0} className="max-h-96 overflow-y-auto">
        <ul className="divide-y">
          {rows.map((row) => (
            <UploadRow
              key={row.key}
              row={row}
              used={isUsed(row)}
              onUse={(use) => {
                onUse(row, use);
              }}
              onRemove={() => {
                if (row.state === "complete") setAsked(row);
                else onRemove(row);
              }}
            />
          ))}
        </ul>
      </div>
      {asked !== null && (
        <ConfirmDialog
          title={`Remove ${asked.name}?`}
          consequence={`This deletes the ${bytes(asked.bytes)} that the server has of it. To use the file later, upload it again.`}
          verb="Remove file"
          keep="Keep it"
          busy={false}
          error={null}
          onConfirm={() => {
            onRemove(asked);
            setAsked(null);
          }}
          onClose={() => {
            setAsked(null);
          }}
        />
      )}
    </section>
  );

  function summary(): string {
    if (total.complete === total.files) return `${bytes(total.bytes)}, all here`;
    const part = `${total.complete} here, ${bytes(total.sent)} of ${bytes(total.bytes)}`;
    const { bytesPerSecond: speed } = total;
    return speed === 0 ? part : `${part}, ${bytes(speed)}/s, ${duration((total.bytes - total.sent) / speed)} left`;
  }
}
