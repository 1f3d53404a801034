import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { AuditEntry } from "@/api/types";
import { Button, buttonClass } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Table } from "@/components/Table";
import { TextInput } from "@/components/TextInput";
import { Th } from "@/components/Th";
import { AuditRow } from "@/features/teams/audit/AuditRow";
import { auditQuery } from "@/features/teams/audit/auditQuery";
import { dayText } from "@/lib/format";
import { useDebounced } from "@/lib/hooks/useDebounced";

const TYPING_MS = 300;

interface Props {
  /** Null: the log of the site. */
  team: string | null;
}

/** Who changed what on which day, from where, with a search, and a download of the entire log. */
export function AuditLog({ team }: Props) {
  const [words, setWords] = useState("");
  const { data, error, hasNextPage, isFetching, fetchNextPage } = useInfiniteQuery({ ...auditQuery(team, useDebounced(words, TYPING_MS)), placeholderData: keepPreviousData });
  const entries = data?.pages.flatMap(({ items }) => items) ?? [];
  return (
    <div className="flex flex-col gap-3">
      <div className="flex flex-wrap gap-3">
        <TextInput
          type="search"
          aria-label={team === null ? "Search the site's audit log" : "Search the audit log"}
          placeholder="Name, action, id or address"
          className="max-w-80"
          value={words}
          onChange={(event) => {
            setWords(event.target.value);
          }}
        />
        <a className={buttonClass()} href={team === null ? "/api/v1/audit/export" : `/api/v1/teams/${encodeURIComponent(team)}/audit/export`} download>
          Download all (JSON Lines)
        </a>
      </div>
      {error !== null && <ErrorNote error={error} />}
      {data === undefined && error === null && <p className="animate-appear text-soft">Loading</p>}
      {data !== undefined && entries.length === 0 && words === "" && <p className="text-soft">No changes yet.</p>}
      {data !== undefined && entries.length === 0 && words !== "" && (
        <EmptyState title="No matching entries.">
          <Button
            onClick={() => {
              setWords("");
            }}
          >
            Show all entries
          </Button>
        </EmptyState>
      )}
      {entries.length > 0 && (
        <Table
          label={team === null ? "Site audit log" : "Audit log"}
          grouped
          head={
            <>
              <Th>time</Th>
              <Th>who</Th>
              <Th>what</Th>
              <Th className="max-tablet:hidden">from</Th>
            </>
          }
        >
          {byDay(entries).map(([day, own]) => (
            <tbody key={day} className="border-b last:border-b-0">
              <tr className="border-b bg-raised">
                <th scope="rowgroup" colSpan={4} className="px-4 py-1 text-left font-medium">
                  {day}
                </th>
              </tr>
              {own.map((entry) => (
                <AuditRow key={entry.sequence} entry={entry} />
              ))}
            </tbody>
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

/** The entries of each day in the viewer's time zone, in the order of the entries. */
function byDay(entries: readonly AuditEntry[]): [string, AuditEntry[]][] {
  const days = new Map<string, AuditEntry[]>();
  for (const entry of entries) {
    const day = dayText(entry.time);
    days.set(day, [...(days.get(day) ?? []), entry]);
  }
  return [...days];
}
