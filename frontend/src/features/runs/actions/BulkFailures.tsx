import type { BulkResult, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { count, plural } from "@/lib/format";

interface Props {
  failures: readonly BulkResult[];
  /** Number of runs the action was sent for. */
  requestedCount: number;
  runs: readonly Run[];
  onClose: () => void;
}

/** The runs for which an action failed, and why; shown until dismissed. */
export function BulkFailures({ failures, requestedCount, runs, onClose }: Props) {
  if (failures.length === 0) return null;
  return (
    <div role="alert" className="panel border-bad px-4 py-2">
      <p className="flex items-center justify-between gap-4 font-medium">
        {requestedCount > 1 ? `Failed for ${count(failures.length)} of ${plural(requestedCount, "run")}` : "Failed for 1 run"}
        <Button variant="quiet" onClick={onClose}>
          Dismiss
        </Button>
      </p>
      <div role="region" aria-label="Runs not changed" tabIndex={0} className="max-h-60 overflow-y-auto">
        <ul className="flex flex-col gap-1">
          {failures.map(({ run, detail }) => (
            <li key={run}>
              <span className="font-medium">{runs.find(({ id }) => id === run)?.name ?? run}</span> <span className="text-soft">{detail}</span>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}
