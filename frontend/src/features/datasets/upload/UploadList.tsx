import { Pause, Play } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { Meter } from "@/components/Meter";
import { uploadTotals, type UploadRowData } from "@/features/datasets/upload/uploadRows";
import { UploadRow } from "@/features/datasets/upload/UploadRow";
import { pause, resume } from "@/features/datasets/upload/uploadStore";
import { bytes, duration, plural } from "@/lib/format";

interface Props {
  rows: readonly UploadRowData[];
  isSelected: (row: UploadRowData) => boolean;
  onSelect: (row: UploadRowData, use: boolean) => void;
  onRemove: (row: UploadRowData) => void;
}

/** Files that no dataset uses yet: uploading, incomplete or uploaded. */
export function UploadList({ rows, isSelected, onSelect, onRemove }: Props) {
  const [removing, setRemoving] = useState<UploadRowData | null>(null);
  const total = uploadTotals(rows);
  const active = rows.filter(({ state }) => state === "sending" || state === "queued");
  const paused = rows.filter(({ state }) => state === "paused");
  return (
    <section aria-label="Uploads" className="panel mt-3">
      <div className="flex min-h-11 flex-wrap items-center gap-x-4 gap-y-2 border-b px-4 py-1.5">
        <h2 className="font-medium">{plural(total.files, "file")}</h2>
        <Meter fraction={total.bytes === 0 ? 1 : total.sent / total.bytes} label="All uploads" className="w-36" />
        <span className="text-soft">{summaryText()}</span>
        <span className="ml-auto flex gap-2">
          {active.length > 0 && (
            <Button
              onClick={() => {
                for (const { key } of active) pause(key);
              }}
            >
              <Pause aria-hidden size={14} />
              Pause all
            </Button>
          )}
          {active.length === 0 && paused.length > 0 && (
            <Button
              onClick={() => {
                for (const { key } of paused) resume(key);
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
              isSelected={isSelected(row)}
              onSelect={(use) => {
                onSelect(row, use);
              }}
              onRemove={() => {
                if (row.state === "complete") setRemoving(row);
                else onRemove(row);
              }}
            />
          ))}
        </ul>
      </div>
      {removing !== null && (
        <ConfirmDialog
          title={`Remove ${removing.label}?`}
          consequence={`This deletes the ${bytes(removing.bytes)} that the server has. To use the file later, upload it again.`}
          confirmLabel="Remove file"
          cancelLabel="Cancel"
          busy={false}
          error={null}
          onConfirm={() => {
            onRemove(removing);
            setRemoving(null);
          }}
          onClose={() => {
            setRemoving(null);
          }}
        />
      )}
    </section>
  );

  function summaryText(): string {
    if (total.complete === total.files) return `${bytes(total.bytes)}, all uploaded`;
    const part = `${total.complete} uploaded, ${bytes(total.sent)} of ${bytes(total.bytes)}`;
    const { bytesPerSecond: speed } = total;
    return speed === 0 ? part : `${part}, ${bytes(speed)}/s, ${duration((total.bytes - total.sent) / speed)} left`;
  }
}
