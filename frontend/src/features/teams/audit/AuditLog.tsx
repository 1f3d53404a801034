import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Button, buttonClass } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { TextInput } from "@/components/TextInput";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { AuditTarget } from "@/features/teams/audit/AuditTarget";
import { auditQuery } from "@/features/teams/audit/auditQuery";
import { useDebounced } from "@/lib/hooks/useDebounced";

const TYPING_MS = 300;

interface Props {
  /** Null: the log of the site. */
  team: string | null;
}

/** Who changed what, from where, with a search, and a download of the entire log. */
export function AuditLog({ team }: Props) {
  const [words, setWords] = useState("");
  const { data, error, hasNextPage, isFetching, fetchNextPage } = useInfiniteQuery({ ...auditQuery(team, useDebounced(words, TYPING_MS)), placeholderData: keepPreviousData });
  const entries = data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <div className="flex flex-col gap-3">
      <div className="flex flex-wrap gap-3">
        <TextInput
          type="search"
          aria-label={team === null ? "Search the site’s audit log" : "Search the audit log"}
          placeholder="Name, action, id or address"
          className="max-w-80"
          value={words}
          onChange={(event) => {
            setWords(event.target.value);
          }}
        />
        <a className={buttonClass()} href={team === null ? "/api/v1/audit/export" : `/api/v1/teams/${encodeURIComponent(team)}/audit/export`} download>
          Download all
        </a>
      </div>
      {error !== null && <ErrorNote error={error} />}
      {data === undefined && error === null && <p className="animate-appear text-soft">Loading</p>}
      {data !== undefined && entries.length === 0 && <p className="text-soft">{words === "" ? "No changes yet." : "No entry contains these words."}</p>}
      {entries.length > 0 && (
        <Table
          label={team === null ? "Audit log of the site" : "Audit log"}
          head={
            <>
              <Th>time</Th>
              <Th>who</Th>
              <Th>what</Th>
              <Th className="max-tablet:hidden">from</Th>
            </>
          }
        >
          {entries.map(({ sequence, time, name, via, address, action, path, details }) => (
            <tr key={sequence} className={`${rowClass} align-top`}>
              <Td className="whitespace-nowrap">
                <Time at={time} />
              </Td>
              <Td>
                {name}
                <span className="block text-small text-soft">{via === "browser" ? "browser" : `key ${via}`}</span>
              </Td>
              <Td>
                {action.replaceAll("_", " ")}
                <AuditTarget path={path} />
                {details !== "" && (
                  <details className="text-small text-soft">
                    <summary className="w-fit cursor-pointer">details</summary>
                    <span className="wrap-break-word">{detailsText(details)}</span>
                  </details>
                )}
              </Td>
              <Td className="text-soft max-tablet:hidden">{address}</Td>
            </tr>
          ))}
        </Table>
      )}
      {hasNextPage && (
        <div>
          <Button disabled={isFetching} onClick={() => void fetchNextPage()}>
            Show older
          </Button>
        </div>
      )}
    </div>
  );
}

/** `role: viewer, name: Ada` of an object in JSON; anything else as it is. */
function detailsText(details: string): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(details);
  } catch {
    return details;
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return details;
  return Object.entries(parsed)
    .map(([key, value]) => `${key.replaceAll("_", " ")}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}
