import { useQuery } from "@tanstack/react-query";
import { ExpectedStart } from "@/features/queue/ExpectedStart";
import { queueQuery } from "@/features/queue/queries";

/** When one waiting run is expected to start, as a sentence; nothing if that is not known. */
export function StartForecast({ team, runId }: { team: string; runId: string }) {
  const { data: queue } = useQuery(queueQuery(team));
  const run = queue?.find(({ id }) => id === runId);
  if (run?.expected_start == null) return null;
  return (
    <>
      Expected start: <ExpectedStart run={run} />.
    </>
  );
}
