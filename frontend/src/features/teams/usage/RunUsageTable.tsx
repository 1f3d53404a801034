import { Link } from "@tanstack/react-router";
import type { RunUsage } from "@/api/types";
import { Meter } from "@/components/Meter";
import { ShortId } from "@/components/ShortId";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { DEVICE_LABELS } from "@/features/teams/usage/usageView";
import { hoursText } from "@/lib/format";
import { idsOfSharedNames } from "@/lib/sharedNames";

interface Props {
  team: string;
  runs: readonly RunUsage[];
}

/** The runs with the highest usage; a deleted run keeps its usage but loses its name. */
export function RunUsageTable({ team, runs }: Props) {
  const sharedNames = idsOfSharedNames(runs.filter(({ name }) => name !== "").map(({ run, name }) => ({ id: run, name })));
  return (
    <Table
      label="Top runs by usage"
      head={
        <>
          <Th>run</Th>
          <Th className="text-right">used</Th>
          <Th className="w-32 max-tablet:hidden">
            <span className="sr-only">share of the top run</span>
          </Th>
        </>
      }
    >
      {runs.map(({ run, name, device, slot_hours: hours }) => {
        const most = Math.max(...runs.filter((run) => run.device === device).map((run) => run.slot_hours));
        return (
          <tr key={`${run} ${device}`} className={`relative ${rowClass}`}>
            <Td className="max-w-0 truncate">
              {name === "" ? (
                <span className="text-soft" title={run}>
                  deleted run
                </span>
              ) : (
                <Link
                  to="/$team/runs/$runId/$tab"
                  params={{ team, runId: run, tab: "overview" }}
                  className="font-medium after:absolute after:inset-0"
                  title={name}
                >
                  {name}
                  {sharedNames.has(run) && <ShortId id={run} />}
                </Link>
              )}
            </Td>
            <Td className="w-44 text-right whitespace-nowrap">
              {hoursText(hours)} <span className="text-small text-soft">{DEVICE_LABELS[device]?.hours ?? device}</span>
            </Td>
            <Td className="max-tablet:hidden">
              <Meter fraction={most === 0 ? 0 : hours / most} label={`${name || run}: share of the top run`} className="w-full" />
            </Td>
          </tr>
        );
      })}
    </Table>
  );
}
