import type { BulkResult, Run } from "@/api/types";
import { Button } from "@/components/Button";
import { count, plural } from "@/lib/format";

interface Props {
  refused: readonly BulkResult[];
  /** How many runs were asked in all. */
  asked: number;
  runs: readonly Run[];
  onClose: () => void;
}

/** Which of many runs a verb was refused for, and why; it stays until it is read. */
export function BulkRefusals({ refused, asked, runs, onClose }: Props) {
  if (refused.length === 0) return null;
  return (
    <div role="alert" className="panel border-bad px-4 py-2">
      <p className="flex items-center justify-between gap-4 font-medium">
        {asked > 1 ? `${count(refused.length)} of ${plural(asked, "run")} refused` : "1 run refused"}
        <Button look="quiet" onClick={onClose}>
          I have read it
        </Button>
      </p>
      <div role="region" aria-label="Refused runs" tabIndex={0} className="max-h-60 overflow-y-auto">
        <ul className="flex flex-col gap-1">
          {refused.map(({ run, detail }) => (
            <li key={run}>
              <span className="font-medium">{runs.find(({ id }) => id === run)?.name ?? run}</span> <span className="text-soft">{detail}</span>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}
