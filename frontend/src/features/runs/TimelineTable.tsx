import type { RunPlan } from "@/api/types";
import { Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";

const MOST = 200;

/** What each rank does, in order: the kind of work, its stage, its micro batch. */
export function TimelineTable({ plan }: { plan: RunPlan }) {
  const head = (
    <>
      <Th>pipeline rank</Th>
      <Th>work, stage.micro batch</Th>
    </>
  );
  return (
    <Table label="Order of the pipeline's work" head={head}>
      {plan.timeline.map((row, rank) => (
        <tr key={rank} className="border-b align-top last:border-b-0">
          <Td>{rank}</Td>
          <Td className="font-mono text-mono">
            {row.slice(0, MOST).map(({ kind, stage, micro_batch }) => `${kind}${stage}.${micro_batch}`).join(" ")}
            {row.length > MOST && " …"}
          </Td>
        </tr>
      ))}
    </Table>
  );
}
