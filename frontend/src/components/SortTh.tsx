import { ArrowDown, ArrowUp } from "lucide-react";
import type { CSSProperties } from "react";
import { Th } from "@/components/Th";

interface Props {
  children: string;
  /** How the table is sorted by this column; undefined: by another. */
  order: "asc" | "desc" | undefined;
  onSort: () => void;
  className?: string;
  style?: CSSProperties;
}

/** The head of a column by which its table can be sorted. */
export function SortTh({ children, order, onSort, className = "", style }: Props) {
  const Arrow = order === "asc" ? ArrowUp : ArrowDown;
  return (
    <Th className={className} style={style} aria-sort={order === undefined ? undefined : order === "asc" ? "ascending" : "descending"}>
      <button
        type="button"
        className={`inline-flex min-h-8 items-center gap-1 rounded-box hover:text-text focus-visible:-outline-offset-2 ${order === undefined ? "" : "text-text"}`}
        onClick={onSort}
      >
        {children}
        <Arrow aria-hidden size={12} className={order === undefined ? "hidden" : ""} />
      </button>
    </Th>
  );
}
