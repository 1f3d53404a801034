import { useSyncExternalStore } from "react";
import { ErrorNote } from "@/components/ErrorNote";
import { Meter } from "@/components/Meter";
import { uploadStore } from "@/features/datasets/uploads";
import { bytes, duration } from "@/lib/format";

interface Props {
  team: string;
  dataset: string | null;
}

/** What is being uploaded here, how fast, and for how long still. */
export function UploadList({ team, dataset }: Props) {
  const uploads = useSyncExternalStore(uploadStore.subscribe, uploadStore.all);
  const here = uploads.filter((upload) => upload.team === team && upload.dataset === dataset);
  if (here.length === 0) return null;
  return (
    <ul className="panel mt-3 divide-y">
      {here.map(({ id, name, sent, total, bytesPerSecond, error, cancel }) => (
        <li key={id} className="flex flex-wrap items-center gap-x-4 gap-y-2 px-4 py-2">
          <span className="font-medium break-all">{name}</span>
          {error === null ? (
            <>
              <Meter fraction={total === 0 ? 1 : sent / total} label={`Upload of ${name}`} className="w-48" />
              <span className="text-soft">{progress(sent, total, bytesPerSecond)}</span>
            </>
          ) : (
            <ErrorNote error={error} />
          )}
          <button
            type="button"
            className="ml-auto text-accent hover:underline"
            onClick={() => {
              if (error === null) cancel();
              else uploadStore.dismiss(id);
            }}
          >
            {error === null ? "Stop" : "Dismiss"}
            <span className="sr-only"> {name}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

function progress(sent: number, total: number, speed: number): string {
  if (sent >= total && total > 0) return `${bytes(total)} sent, being stored`;
  const left = speed === 0 ? "" : `, ${bytes(speed)}/s, ${duration((total - sent) / speed)} left`;
  return `${bytes(sent)} of ${bytes(total)}${left}`;
}
