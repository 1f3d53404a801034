import { useSuspenseInfiniteQuery } from "@tanstack/react-query";
import { useDeferredValue, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { SelectionCheckbox } from "@/components/SelectionCheckbox";
import { Table } from "@/components/Table";
import { BulkActions } from "@/features/runs/actions/BulkActions";
import { runsQuery } from "@/features/runs/queries";
import { visibleColumns, tableWidthPx, type RunColumn } from "@/features/runs/list/runColumns";
import { isFiltering, sortOrder, toggleSort, toggleTag, type RunFilter, type RunSort } from "@/features/runs/list/runFilter";
import { RunTableHead } from "@/features/runs/list/RunTableHead";
import { RunRow } from "@/features/runs/list/RunRow";
import { useRowNavigation } from "@/features/runs/list/useRowNavigation";
import { plural } from "@/lib/format";
import { useCanEdit } from "@/lib/permissions";
import { EMPTY_SELECTION, toggleSelection, toggleAll } from "@/features/runs/list/rowSelection";
import { useHotkeys } from "@/lib/hooks/useHotkeys";
import { useNow } from "@/lib/hooks/useNow";
import { useVirtualRows } from "@/lib/hooks/useVirtualRows";
import { idsOfSharedNames } from "@/lib/sharedNames";

interface Props {
  team: string;
  filter: RunFilter;
  /** Selects the runs of a group among those of the filter. */
  within?: RunFilter;
  columns: readonly RunColumn[];
  /** Whether phones show checkboxes. The selection ends with it. */
  selecting: boolean;
  /** Number of pages to load. */
  pages: number;
  onPages: (pages: number) => void;
  onFilter: (filter: RunFilter) => void;
  onClear: () => void;
  onCompare?: (runs: readonly string[]) => void;
  /** Shown instead of the table when the team has no runs. */
  empty: ReactNode;
}

/** On phones the actions stay visible above the navigation bar. */
const STICKY_ON_PHONES = "max-tablet:sticky max-tablet:bottom-16 max-tablet:z-2 max-tablet:-mx-4 max-tablet:border-t max-tablet:bg-bg max-tablet:px-4 max-tablet:py-2 max-tablet:max-h-[45dvh] max-tablet:overflow-y-auto";

/** The next page is requested this close to the end of the loaded rows. */
const NEAR_END_ROWS = 30;

/**
 * A team's runs with live states, newest first unless sorted. `j` and `k` move down and up, `↵` opens, `x`
 * selects.
 */
export function RunTable({ team, filter, within, columns, selecting, pages, onPages, onFilter, onClear, onCompare, empty }: Props) {
  // The previous list stays, dimmed, while a new filter loads.
  const listedFilter = useDeferredValue(filter);
  const { data, hasNextPage, fetchNextPage, isFetching } = useSuspenseInfiniteQuery(runsQuery(team, { ...listedFilter, ...within }));
  const now = useNow();
  const box = useRef<HTMLDivElement>(null);
  const [selection, setSelection] = useState(EMPTY_SELECTION);
  const [wasSelecting, setWasSelecting] = useState(selecting);
  if (selecting !== wasSelecting) {
    setWasSelecting(selecting);
    if (!selecting) setSelection(EMPTY_SELECTION);
  }
  // Pages are read one after another: a run that moves in between is in two of them.
  const runs = useMemo(() => [...new Map(data.pages.flatMap((page) => page.items).map((run) => [run.id, run])).values()], [data]);
  const ids = useMemo(() => runs.map(({ id }) => id), [runs]);
  const { start, end, rowPx } = useVirtualRows(box, runs.length);
  const navigation = useRowNavigation(box, ids, rowPx, start);
  const canEdit = useCanEdit();

  useEffect(() => {
    if (data.pages.length < pages && hasNextPage && !isFetching) void fetchNextPage();
  }, [data.pages.length, pages, hasNextPage, isFetching, fetchNextPage]);
  const nearEnd = rowPx > 0 && end > runs.length - NEAR_END_ROWS && hasNextPage && data.pages.length === pages;
  useEffect(() => {
    if (nearEnd) onPages(pages + 1);
  }, [nearEnd, onPages, pages]);

  const { focusedRow } = navigation;
  const keys = useMemo(() => {
    const toggleFocused = (range: boolean) => () => {
      const id = focusedRow();
      if (id !== null) setSelection((old) => toggleSelection(old, ids, id, range));
    };
    return {
      x: toggleFocused(false),
      X: toggleFocused(true),
      Escape: () => {
        setSelection(EMPTY_SELECTION);
      },
    };
  }, [focusedRow, ids]);
  useHotkeys(keys);

  if (runs.length === 0 && isFiltering(listedFilter)) {
    return (
      <EmptyState title="No matching runs.">
        <p>Change the filter, or show all of the team's runs.</p>
        <Button onClick={onClear}>Show all runs</Button>
      </EmptyState>
    );
  }
  if (runs.length === 0) return empty;
  const selectedRuns = runs.filter(({ id }) => selection.selected.has(id));
  const isSelecting = selecting || selectedRuns.length > 0;
  const shown = visibleColumns(columns, runs);
  const sharedNames = idsOfSharedNames(runs);
  const sorting = (by: RunSort) => ({
    order: sortOrder(filter, by),
    onSort: () => {
      onFilter(toggleSort(filter, by));
    },
  });
  const selectAll = (
    <SelectionCheckbox
      label="all listed runs"
      state={selectedRuns.length === 0 ? "none" : selectedRuns.length === runs.length ? "all" : "some"}
      onToggle={() => {
        setSelection(toggleAll(selection, ids));
      }}
    />
  );
  return (
    <div aria-busy={listedFilter !== filter} className="flex flex-col gap-3">
      <div role="presentation" onFocus={navigation.onFocus}>
        <Table
          ref={box}
          label="Runs"
          scrolls
          minWidthPx={tableWidthPx(shown)}
          {...(rowPx > 0 && end - start < runs.length ? { rowCount: hasNextPage ? -1 : runs.length } : {})}
          head={<RunTableHead columns={shown} sorting={sorting} select={selectAll} isSelecting={isSelecting} />}
        >
          <Spacer rows={start} rowPx={rowPx} />
          {runs.slice(start, end).map((run, index) => (
            <RunRow
              key={run.id}
              team={team}
              run={run}
              columns={shown}
              now={now}
              hasUniqueName={!sharedNames.has(run.id)}
              index={start + index + 1}
              isSelected={selection.selected.has(run.id)}
              select={renderCheckbox(run)}
              isSelecting={isSelecting}
              onTag={(tag) => {
                onFilter(toggleTag(filter, tag));
              }}
            />
          ))}
          <Spacer rows={runs.length - end} rowPx={rowPx} />
        </Table>
      </div>
      <div className={`flex min-h-8 flex-wrap items-center gap-3 ${selectedRuns.length > 0 ? STICKY_ON_PHONES : ""}`}>
        <BulkActions
          team={team}
          runs={selectedRuns}
          canEdit={canEdit}
          onCompare={onCompare}
          onClear={() => {
            setSelection(EMPTY_SELECTION);
          }}
        />
        <span className="text-small text-soft">
          {plural(runs.length, "run")}
          {hasNextPage && ", more available"}
          {listedFilter !== filter && "; filtering…"}
        </span>
        {hasNextPage && (
          <Button
            variant="quiet"
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

  function renderCheckbox(run: Run): ReactNode {
    return (
      <SelectionCheckbox
        label={run.name}
        state={selection.selected.has(run.id) ? "all" : "none"}
        onToggle={(range) => {
          setSelection(toggleSelection(selection, ids, run.id, range));
        }}
      />
    );
  }
}

/** Reserves the height of rows that are not rendered. */
function Spacer({ rows, rowPx }: { rows: number; rowPx: number }) {
  if (rows <= 0 || rowPx === 0) return null;
  return (
    <tr aria-hidden>
      <td className="p-0" style={{ height: rows * rowPx }} />
    </tr>
  );
}
