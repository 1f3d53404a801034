import { useSuspenseInfiniteQuery } from "@tanstack/react-query";
import { useMemo, useRef, type ReactNode } from "react";
import { Button } from "@/components/Button";
import { Table } from "@/components/Table";
import { Th } from "@/components/Th";
import { runsQuery } from "@/features/runs/queries";
import { RunRow } from "@/features/runs/RunRow";
import { useHotkeys } from "@/lib/useHotkeys";
import { useNow } from "@/lib/useNow";

interface Props {
  team: string;
  /** In place of the table when there is nothing to list. */
  empty: ReactNode;
}

/** A team's runs, newest first, with their live states. `j` and `k` walk down and up, `↵` opens. */
export function RunTable({ team, empty }: Props) {
  const { data, hasNextPage, fetchNextPage, isFetchingNextPage } = useSuspenseInfiniteQuery(runsQuery(team));
  const now = useNow();
  const box = useRef<HTMLDivElement>(null);
  const keys = useMemo(
    () => ({
      j: () => {
        walk(box.current, 1);
      },
      k: () => {
        walk(box.current, -1);
      },
    }),
    [],
  );
  useHotkeys(keys);
  const runs = data.pages.flatMap((page) => page.items);
  if (runs.length === 0) return empty;
  return (
    <div ref={box} className="flex flex-col items-start gap-4">
      <div className="w-full">
        <Table
          label="Runs"
          head={
            <>
              <Th className="w-32">state</Th>
              <Th className="w-72 max-tablet:w-28">name</Th>
              <Th className="w-24 text-right max-tablet:hidden">MFU</Th>
              <Th className="w-24 text-right max-tablet:w-16">loss</Th>
              <Th className="w-28 max-tablet:hidden">
                <span className="sr-only">loss so far</span>
              </Th>
              <Th className="text-right max-tablet:hidden">tokens/s</Th>
              <Th className="w-36 text-right max-tablet:w-20">time</Th>
              <Th className="w-28 max-tablet:hidden">by</Th>
            </>
          }
        >
          {runs.map((run) => (
            <RunRow key={run.id} team={team} run={run} now={now} />
          ))}
        </Table>
      </div>
      {hasNextPage && (
        <Button disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          Show older runs
        </Button>
      )}
    </div>
  );
}

/** Moves the focus to the next or the previous run's name. */
function walk(box: HTMLElement | null, direction: 1 | -1): void {
  const links = Array.from(box?.querySelectorAll<HTMLElement>("tbody a") ?? []);
  const here = links.findIndex((link) => link === document.activeElement);
  const next = here === -1 ? 0 : Math.min(links.length - 1, Math.max(0, here + direction));
  links[next]?.focus();
}
