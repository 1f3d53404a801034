import { useSuspenseQuery } from "@tanstack/react-query";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { membersQuery } from "@/features/teams/queries";

export function MemberTable({ team }: { team: string }) {
  const { data: members } = useSuspenseQuery(membersQuery(team));
  return (
    <Table
      label="Members"
      head={
        <>
          <Th>name</Th>
          <Th>email</Th>
          <Th>role</Th>
        </>
      }
    >
      {members.map((member) => (
        <tr key={member.id} className={rowClass}>
          <Td className="font-medium">{member.name}</Td>
          <Td>{member.email}</Td>
          <Td className="text-soft">{member.role}</Td>
        </tr>
      ))}
    </Table>
  );
}
