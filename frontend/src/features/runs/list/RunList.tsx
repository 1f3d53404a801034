import type { Run } from "@/api/types";
import { Table } from "@/components/Table";
import { tableWidthPx, type RunColumn } from "@/features/runs/list/runColumns";
import { RunTableHead } from "@/features/runs/list/RunTableHead";
import { RunRow } from "@/features/runs/list/RunRow";
import { useNow } from "@/lib/hooks/useNow";

interface Props {
  team: string;
  label: string;
  runs: readonly Run[];
  columns: readonly RunColumn[];
}

/** A short list of runs, all rendered, in the order given. */
export function RunList({ team, label, runs, columns }: Props) {
  const now = useNow();
  return (
    <Table label={label} minWidthPx={tableWidthPx(columns)} head={<RunTableHead columns={columns} />}>
      {runs.map((run) => (
        <RunRow key={run.id} team={team} run={run} columns={columns} now={now} />
      ))}
    </Table>
  );
}
