import { useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { MemberLimits, MemberLimitUse } from "@/api/types";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { MEMBER_FIELDS, typedLimit } from "@/features/teams/limits/limitFields";
import { memberLimitsQuery } from "@/features/teams/limits/limitQueries";
import { MemberLimitDialog } from "@/features/teams/limits/MemberLimitDialog";
import { usedBytes } from "@/features/teams/limits/usedBytes";
import { bytes, count, hoursText } from "@/lib/format";

/** The members' limits within those of the team, and what their runs use; owners change them. */
export function MemberLimitTable({ team, isOwner }: { team: string; isOwner: boolean }) {
  const { data } = useSuspenseQuery(memberLimitsQuery(team));
  const [edited, setEdited] = useState<MemberLimitUse | null>(null);
  return (
    <>
      <Table
        label="Member limits"
        head={
          <>
            <Th>name</Th>
            <Th>limits</Th>
            <Th className="max-tablet:hidden">used this month</Th>
            <Th className="text-right max-tablet:hidden">stored</Th>
            <Th className="text-right max-tablet:hidden">runs</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {data.map((member) => (
          <tr key={member.user} className={rowClass}>
            <Td className="font-medium">{member.name}</Td>
            <Td className="text-soft">{limitText(member.limits)}</Td>
            <Td className="text-soft max-tablet:hidden">{usedText(member)}</Td>
            <Td className="text-right whitespace-nowrap text-soft max-tablet:hidden">{storedText(member)}</Td>
            <Td className="text-right text-soft max-tablet:hidden">
              {count(member.running)} on nodes, {count(member.queued)} queued
            </Td>
            <Td className="text-right">
              {isOwner && (
                <button
                  type="button"
                  aria-label={`Change limits of ${member.name}`}
                  className="text-accent hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                  onClick={() => {
                    setEdited(member);
                  }}
                >
                  Change
                </button>
              )}
            </Td>
          </tr>
        ))}
      </Table>
      {edited !== null && (
        <MemberLimitDialog
          team={team}
          member={edited}
          onClose={() => {
            setEdited(null);
          }}
        />
      )}
    </>
  );
}

/** "GPUs at once 2, queued runs 5". */
export function limitText(limits: MemberLimits): string {
  const parts = MEMBER_FIELDS.flatMap((field) => (limits[field.name] == null ? [] : [`${field.label} ${typedLimit(limits[field.name], field)}`]));
  if (limits.highest_priority != null) parts.push(`priority up to ${limits.highest_priority}`);
  return parts.length === 0 ? "same as the team" : parts.join(", ");
}

function storedText({ storage }: MemberLimitUse): string {
  return storage == null ? "–" : bytes(usedBytes(storage));
}

function usedText({ hours }: MemberLimitUse): string {
  const used = hours.filter(({ used }) => used > 0).map(({ device, used }) => `${hoursText(used)} ${device === "cuda" ? "GPU-hours" : "CPU slot-hours"}`);
  return used.length === 0 ? "–" : used.join(", ");
}
