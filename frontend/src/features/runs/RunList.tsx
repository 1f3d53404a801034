import type { Run } from "@/api/types";
import { Table } from "@/components/Table";
import { widthOf, type RunColumn } from "@/features/runs/runColumns";
import { RunHead } from "@/features/runs/RunHead";
import { RunRow } from "@/features/runs/RunRow";
import { useNow } from "@/lib/useNow";

interface Props {
  team: string;
  label: string;
  runs: readonly Run[];
  columns: readonly RunColumn[];
}

/** A few runs, all of them in the page, in the order given. */
export function RunList({ team, label, runs, columns }: Props) {
  const now = useNow();
  return (
    <Table label={label} minWidthPx={widthOf(columns)} head={<RunHead columns={columns} />}>
      {runs.map((run) => (
        <RunRow key={run.id} team={team} run={run} columns={columns} now={now} />
      ))}
    </Table>
  );
}
