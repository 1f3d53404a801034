import type { QueuedRun } from "@/api/types";
import { Time } from "@/components/Time";

/** When a waiting run is expected to start. */
export function ExpectedStart({ run }: { run: QueuedRun }) {
  if (run.expected_start == null) return "not known";
  if (!run.start_is_rough) return <Time at={run.expected_start} />;
  return (
    <span title="Depends on runs that were never measured: their length is estimated from the speed of the team's newest runs.">
      about <Time at={run.expected_start} />
    </span>
  );
}
