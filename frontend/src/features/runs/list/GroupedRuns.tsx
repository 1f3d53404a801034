import { useSuspenseQuery } from "@tanstack/react-query";
import { useDeferredValue, useState, type ComponentProps } from "react";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { Button } from "@/components/Button";
import { CollapsibleHeader } from "@/components/CollapsibleHeader";
import { EmptyState } from "@/components/EmptyState";
import { groupRows, groupText } from "@/features/runs/list/runGroups";
import { isFiltering, type RunGrouping } from "@/features/runs/list/runFilter";
import { RunTable } from "@/features/runs/list/RunTable";
import { runGroupsQuery } from "@/features/runs/queries";

interface Props extends Omit<ComponentProps<typeof RunTable>, "within"> {
  grouping: RunGrouping;
  /** Id of the open group. */
  open: string | undefined;
  onOpen: (group: string | undefined) => void;
}

/** A team's runs by tag, dataset, model or state; the open group lists its runs. A single group starts open. */
export function GroupedRuns({ grouping, open, onOpen, ...table }: Props) {
  const { team, filter, onClear, empty } = table;
  const listed = useDeferredValue(filter);
  const [isSingleClosed, setSingleClosed] = useState(false);
  const { data } = useSuspenseQuery(runGroupsQuery(team, listed, grouping));
  const rows = groupRows(data, grouping, listed);
  if (rows.length === 0 && isFiltering(listed)) {
    return (
      <EmptyState title="No matching runs.">
        <Button onClick={onClear}>Show all runs</Button>
      </EmptyState>
    );
  }
  if (rows.length === 0) return empty;
  return (
    <ul aria-busy={listed !== filter} className="panel divide-y">
      {rows.map((row) => {
        const isSingle = rows.length === 1;
        const isOpen = isSingle ? !isSingleClosed : row.id === open;
        const content = `group-${row.id}`;
        return (
          <li key={row.id}>
            <h2>
              <CollapsibleHeader
                title={row.label}
                isOpen={isOpen}
                controls={content}
                onToggle={() => {
                  if (isSingle) setSingleClosed(isOpen);
                  else onOpen(isOpen ? undefined : row.id);
                }}
              >
                <span className="min-w-0 truncate text-small text-soft">{groupText(row)}</span>
              </CollapsibleHeader>
            </h2>
            <div id={content} hidden={!isOpen} className="px-4 pt-1 pb-4">
              {isOpen && (
                <AsyncBoundary>
                  <RunTable {...table} within={row.filter} />
                </AsyncBoundary>
              )}
            </div>
          </li>
        );
      })}
    </ul>
  );
}
