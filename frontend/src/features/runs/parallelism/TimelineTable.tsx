import type { RunPlan } from "@/api/types";
import { Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";

const MAX_ACTIONS = 200;

/** The actions of each rank in order: kind, stage and micro batch. */
export function TimelineTable({ plan }: { plan: RunPlan }) {
  const head = (
    <>
      <Th>pipeline rank</Th>
      <Th>work, stage.micro batch</Th>
    </>
  );
  return (
    <Table label="Pipeline schedule" head={head}>
      {plan.timeline.map((row, rank) => (
        <tr key={rank} className="border-b align-top last:border-b-0">
          <Td>{rank}</Td>
          <Td className="font-mono text-mono">
            {row.slice(0, MAX_ACTIONS).map(({ kind, stage, micro_batch }) => `${kind}${stage}.${micro_batch}`).join(" ")}
            {row.length > MAX_ACTIONS && " …"}
          </Td>
        </tr>
      ))}
    </Table>
  );
}
