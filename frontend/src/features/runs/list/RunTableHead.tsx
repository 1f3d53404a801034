import type { ReactNode } from "react";
import { SortableTh } from "@/components/SortTh";
import { Th } from "@/components/Th";
import { COLUMN_STYLES, columnWidth, type RunColumn } from "@/features/runs/list/runColumns";
import type { RunSort } from "@/features/runs/list/runFilter";

interface Sorting {
  order: "asc" | "desc" | undefined;
  onSort: () => void;
}

interface Props {
  columns: readonly RunColumn[];
  /** Undefined: this table cannot be sorted. */
  sorting?: (by: RunSort) => Sorting;
  select?: ReactNode;
  /** As in the rows (`RunRow`). */
  isSelecting?: boolean;
}

/** The header of the runs table. Widths do not depend on the rows, so that nothing shifts when they come and go; the name has what the others leave. */
export function RunTableHead({ columns, sorting, select, isSelecting = false }: Props) {
  const name = sorting?.("name");
  return (
    <>
      {select !== undefined && <Th className={`w-10 ${isSelecting ? "max-tablet:w-11" : "max-tablet:hidden"}`}>{select}</Th>}
      <Th className="w-30 max-tablet:w-[104px]">state</Th>
      {name === undefined ? <Th>name</Th> : <SortableTh {...name}>name</SortableTh>}
      {columns.map((column) => {
        const { label, alignRight, sort } = COLUMN_STYLES[column];
        const cellProps = { className: `max-tablet:hidden ${alignRight === true ? "text-right" : ""}`, style: { width: columnWidth(column, columns) } };
        if (sort !== undefined && sorting !== undefined) {
          return (
            <SortableTh key={column} {...cellProps} {...sorting(sort)}>
              {label}
            </SortableTh>
          );
        }
        return (
          <Th key={column} {...cellProps}>
            {label}
          </Th>
        );
      })}
      <Th className="w-31 text-right tablet:hidden">loss, time</Th>
    </>
  );
}
