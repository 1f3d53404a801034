import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { ErrorNote } from "@/components/ErrorNote";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { endSession, sessionsQuery } from "@/features/auth/queries";

/** The browsers in which the person is signed in. Others than this one can be signed out. */
export function SessionTable() {
  const { data: sessions } = useSuspenseQuery(sessionsQuery);
  const client = useQueryClient();
  const end = useMutation({
    mutationFn: endSession,
    onSettled: () => client.invalidateQueries({ queryKey: sessionsQuery.queryKey }),
  });
  return (
    <>
      <Table
        label="Browsers"
        head={
          <>
            <Th>browser</Th>
            <Th className="max-tablet:hidden">address</Th>
            <Th>last used</Th>
            <Th className="max-desk:hidden">signed in</Th>
            <Th className="max-tablet:hidden">expires</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {sessions.map(({ id, created, expires, current, device, address, last_used, provider }) => (
          <tr key={id} className={rowClass}>
            <Td>
              {device === "" ? "Unknown" : device}
              {provider !== "" && <span className="block text-small text-soft">signed in with {provider}</span>}
            </Td>
            <Td className="text-soft max-tablet:hidden">{address}</Td>
            <Td className="text-soft">{last_used ? <Time at={last_used} /> : ""}</Td>
            <Td className="text-soft max-desk:hidden">
              <Time at={created} />
            </Td>
            <Td className="text-soft max-tablet:hidden">
              <Time at={expires} />
            </Td>
            <Td className="text-right">
              {current ? (
                <span className="text-soft">This browser</span>
              ) : (
                <button
                  type="button"
                  disabled={end.isPending}
                  className="text-bad hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                  onClick={() => {
                    end.mutate(id);
                  }}
                >
                  Sign out
                </button>
              )}
            </Td>
          </tr>
        ))}
      </Table>
      {end.error !== null && <ErrorNote error={end.error} />}
    </>
  );
}
