import { useQuery } from "@tanstack/react-query";
import { EmptyState } from "@/components/EmptyState";
import { Skeleton } from "@/components/Skeleton";
import { ErrorState } from "@/components/ErrorState";
import { LogPanel } from "@/features/runs/log/LogPanel";
import { logFilesQuery } from "@/features/runs/log/logQueries";
import { isTarget, type LogSearch } from "@/features/runs/log/logSearch";
import { isFinal } from "@/lib/runs/runProgress";
import type { LogFile, Run } from "@/api/types";

interface Props {
  team: string;
  run: Run;
  view: LogSearch;
  onView: (view: LogSearch) => void;
}

/** The logs of a run, newest attempt first, one panel per rank. */
export function LogTab({ team, run, view, onView }: Props) {
  const live = !isFinal(run.state);
  const { data: files, error, refetch } = useQuery(logFilesQuery(team, run.id, live));
  if (files === undefined) {
    return error === null ? <Skeleton rows={3} /> : <ErrorState error={error} onRetry={() => void refetch()} />;
  }
  if (files.length === 0) {
    return <EmptyState title="No logs yet.">They appear once a node starts the run.</EmptyState>;
  }
  const sorted = files.toSorted(newestAndRanksFirst);
  return (
    <div className="flex flex-col gap-3">
      {sorted.map((file, index) => (
        <LogPanel
          key={`${file.attempt}/${file.file}`}
          place={{ team, run: run.id, attempt: file.attempt, file: file.file }}
          bytes={file.bytes}
          node={file.node ?? null}
          live={live && file.attempt === sorted[0]?.attempt}
          view={isTarget(file, view, index === 0) ? view : null}
          onView={({ line, find }) => {
            onView({ attempt: file.attempt, file: file.file, line, find });
          }}
        />
      ))}
    </div>
  );
}

function newestAndRanksFirst(a: LogFile, b: LogFile): number {
  const ranks = Number(b.file.startsWith("rank")) - Number(a.file.startsWith("rank"));
  return b.attempt - a.attempt || ranks || a.file.localeCompare(b.file, "en", { numeric: true });
}
