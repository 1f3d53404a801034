import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { ArrowDown, ArrowUp } from "lucide-react";
import type { Me, QueuedRun } from "@/api/types";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Select } from "@/components/Select";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { ExpectedStart } from "@/features/queue/ExpectedStart";
import { queueQuery, reorder, setPriority } from "@/features/queue/queries";
import { canMove, prioritiesOf, swapWith } from "@/features/queue/queueMoves";
import { uniqueNames } from "@/lib/uniqueNames";

interface Props {
  team: string;
  /** The role of the signed-in person in the team. */
  memberRole: Me["teams"][number]["role"];
}

/** The runs that wait, in the order in which they start. */
export function QueueTable({ team, memberRole: role }: Props) {
  const { data: queue } = useSuspenseQuery(queueQuery(team));
  const client = useQueryClient();
  const onSettled = () => client.invalidateQueries({ queryKey: ["queue", team] });
  const move = useMutation({ mutationFn: (runs: [string, string]) => reorder(team, runs), onSettled });
  const change = useMutation({
    mutationFn: ({ run, priority }: { run: string; priority: QueuedRun["priority"] }) => setPriority(team, run, priority),
    onSettled,
  });
  const error = move.error ?? change.error;
  if (queue.length === 0) {
    return (
      <EmptyState title="No run is waiting.">
        <p>Runs wait here until the slots that they need are free.</p>
      </EmptyState>
    );
  }
  const names = uniqueNames(queue);
  const swapButton = (run: QueuedRun, direction: "up" | "down") => {
    const swap = swapWith(queue, run, direction, role);
    return (
      <Button
        aria-label={`Move ${run.name} ${direction}, place ${run.position}`}
        disabled={swap === null || move.isPending}
        onClick={() => {
          if (swap !== null) move.mutate(swap);
        }}
      >
        {direction === "up" ? <ArrowUp aria-hidden size={14} /> : <ArrowDown aria-hidden size={14} />}
      </Button>
    );
  };
  return (
    <>
      {error !== null && <ErrorNote error={error} />}
      <Table
        label="Queue"
        head={
          <>
            <Th>place</Th>
            <Th>run</Th>
            <Th className="max-desk:hidden">by</Th>
            <Th className="max-tablet:hidden">slots</Th>
            <Th>priority</Th>
            <Th className="max-desk:hidden">since</Th>
            <Th className="max-tablet:hidden">expected start</Th>
            <Th>
              <span className="sr-only">move</span>
            </Th>
          </>
        }
      >
        {queue.map((run) => (
          <tr key={run.id} className={rowClass}>
            <Td>{run.position}</Td>
            <Td className="whitespace-normal tablet:min-w-48">
              <Link to="/$team/runs/$runId/$tab" params={{ team, runId: run.id, tab: "overview" }} className="font-medium hover:underline">
                {names.get(run.id)}
              </Link>
              <span className="block text-small text-soft">{run.sentence}</span>
              {run.expected_start != null && (
                <span className="block text-small text-soft tablet:hidden">
                  expected start: <ExpectedStart run={run} />
                </span>
              )}
            </Td>
            <Td className="max-desk:hidden">{run.mine ? "you" : run.created_by}</Td>
            <Td className="whitespace-nowrap max-tablet:hidden">
              {run.slots} {run.device === "cuda" ? "GPU" : "CPU"}
            </Td>
            <Td>
              {role === "viewer" ? (
                run.priority
              ) : (
                <Select
                  aria-label={`Priority of ${run.name}, place ${run.position}`}
                  className="min-w-[104px]"
                  value={run.priority}
                  disabled={change.isPending}
                  onChange={(event) => {
                    change.mutate({ run: run.id, priority: event.target.value as QueuedRun["priority"] });
                  }}
                >
                  {prioritiesOf(role, run.priority).map((priority) => (
                    <option key={priority}>{priority}</option>
                  ))}
                </Select>
              )}
            </Td>
            <Td className="whitespace-nowrap text-soft max-desk:hidden">
              <Time at={run.queued} />
            </Td>
            <Td className="whitespace-nowrap text-soft max-tablet:hidden">
              <ExpectedStart run={run} />
            </Td>
            <Td className="text-right whitespace-nowrap">
              {canMove(role, run) && (
                <span className="inline-flex flex-col gap-1 tablet:flex-row">
                  {swapButton(run, "up")}
                  {swapButton(run, "down")}
                </span>
              )}
            </Td>
          </tr>
        ))}
      </Table>
    </>
  );
}
