import { Link } from "@tanstack/react-router";
import type { UsedByRun } from "@/api/types";
import { Meter } from "@/components/Meter";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { DEVICE_WORDS, hoursText } from "@/features/teams/usageView";

interface Props {
  team: string;
  runs: readonly UsedByRun[];
}

/** The runs that used most; a deleted run keeps what it used, but no name. */
export function UsedByRuns({ team, runs }: Props) {
  return (
    <Table
      label="Runs that used most"
      head={
        <>
          <Th>run</Th>
          <Th className="text-right">used</Th>
          <Th className="w-32 max-tablet:hidden">
            <span className="sr-only">share of the most</span>
          </Th>
        </>
      }
    >
      {runs.map(({ run, name, device, slot_hours: hours }) => {
        const most = Math.max(...runs.filter((one) => one.device === device).map((one) => one.slot_hours));
        return (
          <tr key={`${run} ${device}`} className={`relative ${rowClass}`}>
            <Td className="max-w-0 truncate">
              {name === "" ? (
                <span className="text-soft" title={run}>
                  a run that was deleted
                </span>
              ) : (
                <Link
                  to="/$team/runs/$runId/$tab"
                  params={{ team, runId: run, tab: "overview" }}
                  className="font-medium after:absolute after:inset-0"
                  title={name}
                >
                  {name}
                </Link>
              )}
            </Td>
            <Td className="w-44 text-right whitespace-nowrap">
              {hoursText(hours)} <span className="text-small text-soft">{DEVICE_WORDS[device]?.hours ?? device}</span>
            </Td>
            <Td className="max-tablet:hidden">
              <Meter fraction={most === 0 ? 0 : hours / most} label={`${name || run}, beside the run that used most`} className="w-full" />
            </Td>
          </tr>
        );
      })}
    </Table>
  );
}
