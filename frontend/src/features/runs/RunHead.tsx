import type { ReactNode } from "react";
import { SortTh } from "@/components/SortTh";
import { Th } from "@/components/Th";
import { COLUMN_LOOKS, type RunColumn } from "@/features/runs/runColumns";
import type { RunSort } from "@/features/runs/runFilter";

interface Sorting {
  order: "asc" | "desc" | undefined;
  onSort: () => void;
}

interface Props {
  columns: readonly RunColumn[];
  /** Undefined: this table cannot be sorted. */
  sorting?: (by: RunSort) => Sorting;
  select?: ReactNode;
  /** As of the rows (`RunRow`). */
  choosing?: boolean;
}

/** The heads of the runs table. Widths are fixed, so that nothing moves when rows come and go. */
export function RunHead({ columns, sorting, select, choosing = false }: Props) {
  const name = sorting?.("name");
  return (
    <>
      {select !== undefined && <Th className={`w-10 ${choosing ? "max-tablet:w-11" : "max-tablet:hidden"}`}>{select}</Th>}
      <Th className="w-30 max-tablet:w-[104px]">state</Th>
      {name === undefined ? <Th>name</Th> : <SortTh {...name}>name</SortTh>}
      {columns.map((column) => {
        const { head, word, px, right, sort } = COLUMN_LOOKS[column];
        const look = { className: `max-tablet:hidden ${right === true ? "text-right" : ""}`, style: { width: px } };
        if (sort !== undefined && sorting !== undefined) {
          return (
            <SortTh key={column} {...look} {...sorting(sort)}>
              {head}
            </SortTh>
          );
        }
        return (
          <Th key={column} {...look}>
            {head === "" ? <span className="sr-only">{word}</span> : head}
          </Th>
        );
      })}
      <Th className={`w-16 text-right ${choosing ? "hidden" : "tablet:hidden"}`}>loss</Th>
      <Th className="w-24 text-right tablet:hidden">time</Th>
    </>
  );
}
