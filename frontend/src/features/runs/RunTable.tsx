import { useSuspenseInfiniteQuery } from "@tanstack/react-query";
import { useDeferredValue, useMemo, useRef, type ReactNode } from "react";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { SortTh } from "@/components/SortTh";
import { Table } from "@/components/Table";
import { Th } from "@/components/Th";
import { runsQuery } from "@/features/runs/queries";
import { leavesOut, orderBy, sortedBy, type RunFilter, type RunSort } from "@/features/runs/runFilter";
import { RunRow } from "@/features/runs/RunRow";
import { useHotkeys } from "@/lib/useHotkeys";
import { useNow } from "@/lib/useNow";

interface Props {
  team: string;
  filter: RunFilter;
  onFilter: (filter: RunFilter) => void;
  onClear: () => void;
  /** In place of the table when there is nothing to list. */
  empty: ReactNode;
}

/** A team's runs, newest first unless sorted, with their live states. `j` and `k` walk down and up, `↵` opens. */
export function RunTable({ team, filter, onFilter, onClear, empty }: Props) {
  // The list before stays, dimmed, while that of a new filter comes.
  const listed = useDeferredValue(filter);
  const { data, hasNextPage, fetchNextPage, isFetchingNextPage } = useSuspenseInfiniteQuery(runsQuery(team, listed));
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
  // The pages are read one after another: a run that moves meanwhile is in two of them.
  const runs = [...new Map(data.pages.flatMap((page) => page.items).map((run) => [run.id, run])).values()];
  if (runs.length === 0 && leavesOut(listed)) {
    return (
      <EmptyState title="No run matches.">
        <p>Use fewer words or more states, or look at all runs of the team.</p>
        <Button onClick={onClear}>Show all runs</Button>
      </EmptyState>
    );
  }
  if (runs.length === 0) return empty;
  const sort = (by: RunSort) => ({
    order: orderBy(filter, by),
    onSort: () => {
      onFilter(sortedBy(filter, by));
    },
  });
  return (
    <div ref={box} className={`flex flex-col items-start gap-4 transition-opacity duration-100 ${listed === filter ? "" : "opacity-60"}`}>
      <div className="w-full">
        <Table
          label="Runs"
          head={
            <>
              <Th className="w-32">state</Th>
              <SortTh {...sort("name")} className="w-72 max-tablet:w-28">
                name
              </SortTh>
              <SortTh {...sort("mfu")} className="w-24 text-right max-tablet:hidden">
                MFU
              </SortTh>
              <SortTh {...sort("loss")} className="w-24 text-right max-tablet:w-16">
                loss
              </SortTh>
              <Th className="w-28 max-tablet:hidden">
                <span className="sr-only">loss so far</span>
              </Th>
              <SortTh {...sort("tokens_per_second")} className="text-right max-tablet:hidden">
                tokens/s
              </SortTh>
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
          Show more runs
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
