import { useSuspenseInfiniteQuery } from "@tanstack/react-query";
import { useDeferredValue, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { SelectBox } from "@/components/SelectBox";
import { Table } from "@/components/Table";
import { BulkBar } from "@/features/runs/BulkBar";
import { runsQuery } from "@/features/runs/queries";
import { shownColumns, widthOf, type RunColumn } from "@/features/runs/runColumns";
import { leavesOut, orderBy, sortedBy, toggledTag, type RunFilter, type RunSort } from "@/features/runs/runFilter";
import { RunHead } from "@/features/runs/RunHead";
import { RunRow } from "@/features/runs/RunRow";
import { useWalk } from "@/features/runs/useWalk";
import { plural } from "@/lib/format";
import { useMayEdit } from "@/lib/mayEdit";
import { NOTHING_CHOSEN, pressed, pressedAll } from "@/lib/selection";
import { useHotkeys } from "@/lib/useHotkeys";
import { useNow } from "@/lib/useNow";
import { useRowsInSight } from "@/lib/useRowsInSight";

interface Props {
  team: string;
  filter: RunFilter;
  columns: readonly RunColumn[];
  /** How many pages of the list are wanted. */
  pages: number;
  onPages: (pages: number) => void;
  onFilter: (filter: RunFilter) => void;
  onClear: () => void;
  onCompare?: (runs: readonly string[]) => void;
  /** In place of the table when there is nothing to list. */
  empty: ReactNode;
}

/** On phones the verbs stay in sight, above the rail, however many rows are below. */
const AT_HAND = "max-tablet:sticky max-tablet:bottom-16 max-tablet:z-2 max-tablet:-mx-4 max-tablet:border-t max-tablet:bg-bg max-tablet:px-4 max-tablet:py-2 max-tablet:max-h-[45dvh] max-tablet:overflow-y-auto";

/** So close to the end of what is loaded, the next page is asked for. */
const NEAR_END_ROWS = 30;

/** A team's runs, newest first unless sorted, with their live states. `j` and `k` walk down and up, `↵` opens, `x` chooses. */
export function RunTable({ team, filter, columns, pages, onPages, onFilter, onClear, onCompare, empty }: Props) {
  // The list before stays, dimmed, while that of a new filter comes.
  const listed = useDeferredValue(filter);
  const { data, hasNextPage, fetchNextPage, isFetching } = useSuspenseInfiniteQuery(runsQuery(team, listed));
  const now = useNow();
  const box = useRef<HTMLDivElement>(null);
  const [selection, setSelection] = useState(NOTHING_CHOSEN);
  const [began, setBegan] = useState(false);
  // The pages are read one after another: a run that moves meanwhile is in two of them.
  const runs = useMemo(() => [...new Map(data.pages.flatMap((page) => page.items).map((run) => [run.id, run])).values()], [data]);
  const ids = useMemo(() => runs.map(({ id }) => id), [runs]);
  const { begin, end, rowPx } = useRowsInSight(box, runs.length);
  const walking = useWalk(box, ids, rowPx, begin);
  const mayEdit = useMayEdit();

  useEffect(() => {
    if (data.pages.length < pages && hasNextPage && !isFetching) void fetchNextPage();
  }, [data.pages.length, pages, hasNextPage, isFetching, fetchNextPage]);
  const nearEnd = rowPx > 0 && end > runs.length - NEAR_END_ROWS && hasNextPage && data.pages.length === pages;
  useEffect(() => {
    if (nearEnd) onPages(pages + 1);
  }, [nearEnd, onPages, pages]);

  const { at } = walking;
  const keys = useMemo(() => {
    const press = (range: boolean) => () => {
      const id = at();
      if (id !== null) setSelection((old) => pressed(old, ids, id, range));
    };
    return {
      x: press(false),
      X: press(true),
      Escape: () => {
        setSelection(NOTHING_CHOSEN);
      },
    };
  }, [at, ids]);
  useHotkeys(keys);

  if (runs.length === 0 && leavesOut(listed)) {
    return (
      <EmptyState title="No run matches.">
        <p>Use fewer words or more states, or look at all runs of the team.</p>
        <Button onClick={onClear}>Show all runs</Button>
      </EmptyState>
    );
  }
  if (runs.length === 0) return empty;
  const chosen = runs.filter(({ id }) => selection.chosen.has(id));
  const choosing = began || chosen.length > 0;
  const shown = shownColumns(columns, runs);
  const sorting = (by: RunSort) => ({
    order: orderBy(filter, by),
    onSort: () => {
      onFilter(sortedBy(filter, by));
    },
  });
  const selectAll = (
    <SelectBox
      label="all runs listed"
      state={chosen.length === 0 ? "none" : chosen.length === runs.length ? "all" : "some"}
      onPress={() => {
        setSelection(pressedAll(selection, ids));
      }}
    />
  );
  return (
    <div aria-busy={listed !== filter} className="flex flex-col gap-3">
      <div className="flex justify-end tablet:hidden">
        <Button
          onClick={() => {
            setBegan(!choosing);
            setSelection(NOTHING_CHOSEN);
          }}
        >
          {choosing ? "Done" : "Select"}
        </Button>
      </div>
      <div role="presentation" onFocus={walking.onFocus}>
        <Table
          ref={box}
          label="Runs"
          tall
          minWidthPx={widthOf(shown)}
          {...(rowPx > 0 && end - begin < runs.length ? { rowCount: hasNextPage ? -1 : runs.length } : {})}
          head={<RunHead columns={shown} sorting={sorting} select={selectAll} choosing={choosing} />}
        >
          <Gap rows={begin} rowPx={rowPx} />
          {runs.slice(begin, end).map((run, index) => (
            <RunRow
              key={run.id}
              team={team}
              run={run}
              columns={shown}
              now={now}
              index={begin + index + 1}
              chosen={selection.chosen.has(run.id)}
              select={selectOf(run)}
              choosing={choosing}
              onTag={(tag) => {
                onFilter(toggledTag(filter, tag));
              }}
            />
          ))}
          <Gap rows={runs.length - end} rowPx={rowPx} />
        </Table>
      </div>
      <div className={`flex min-h-8 flex-wrap items-center gap-3 ${chosen.length > 0 ? AT_HAND : ""}`}>
        <BulkBar
          team={team}
          runs={chosen}
          mayEdit={mayEdit}
          onCompare={onCompare}
          onClear={() => {
            setSelection(NOTHING_CHOSEN);
          }}
        />
        <span className="text-small text-soft">
          {plural(runs.length, "run")}
          {hasNextPage && ", and more"}
          {listed !== filter && "; looking for those that match"}
        </span>
        {hasNextPage && (
          <Button
            look="quiet"
            disabled={isFetching && data.pages.length < pages}
            onClick={() => {
              onPages(pages + 1);
            }}
          >
            Show more runs
          </Button>
        )}
      </div>
    </div>
  );

  function selectOf(run: Run): ReactNode {
    return (
      <SelectBox
        label={run.name}
        state={selection.chosen.has(run.id) ? "all" : "none"}
        onPress={(range) => {
          setSelection(pressed(selection, ids, run.id, range));
        }}
      />
    );
  }
}

/** The room of rows that are not in sight. */
function Gap({ rows, rowPx }: { rows: number; rowPx: number }) {
  if (rows <= 0 || rowPx === 0) return null;
  return (
    <tr aria-hidden>
      <td className="p-0" style={{ height: rows * rowPx }} />
    </tr>
  );
}
