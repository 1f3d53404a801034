import type { MemberUsage } from "@/api/types";
import { Meter } from "@/components/Meter";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { DEVICE_LABELS, personName } from "@/features/teams/usage/usageView";
import { hoursText } from "@/lib/format";

/** Everybody with usage, including those who have left the team, because their usage still counts. */
export function MemberUsageTable({ members }: { members: readonly MemberUsage[] }) {
  return (
    <Table
      label="Usage by person"
      head={
        <>
          <Th>person</Th>
          <Th className="text-right">used</Th>
          <Th className="w-44 max-tablet:hidden">share</Th>
        </>
      }
    >
      {members.map(({ user, name, in_team: isInTeam, service: isService, device, slot_hours: hours }) => {
        const total = members.reduce((sum, other) => (other.device === device ? sum + other.slot_hours : sum), 0);
        const share = total === 0 ? 0 : hours / total;
        return (
          <tr key={`${user ?? ""} ${device}`} className={rowClass}>
            <Td>
              <span className={user === null ? "text-soft" : "font-medium"}>{personName({ user, name })}</span>
              {user === null ? (
                <span className="block text-small text-soft">deleted runs whose submitter is not known</span>
              ) : (
                <span className="text-soft">
                  {isService && " service account"}
                  {!isInTeam && " no longer in the team"}
                </span>
              )}
            </Td>
            <Td className="w-44 text-right whitespace-nowrap">
              {hoursText(hours)} <span className="text-small text-soft">{DEVICE_LABELS[device]?.hours ?? device}</span>
            </Td>
            <Td className="max-tablet:hidden">
              <span className="flex items-center gap-3">
                <Meter fraction={share} label={`${personName({ user, name })}: share of ${DEVICE_LABELS[device]?.hours ?? device}`} className="w-full" />
                <span className="w-12 text-right whitespace-nowrap text-soft">{Math.round(share * 100)} %</span>
              </span>
            </Td>
          </tr>
        );
      })}
    </Table>
  );
}
