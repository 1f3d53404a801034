import { ArrowDown, ArrowUp } from "lucide-react";
import type { CSSProperties } from "react";
import { Th } from "@/components/Th";

interface Props {
  children: string;
  /** The current sort order of this column; undefined if the table is sorted by another one. */
  order: "asc" | "desc" | undefined;
  onSort: () => void;
  className?: string;
  style?: CSSProperties;
}

/** A sortable column header. */
export function SortableTh({ children, order, onSort, className = "", style }: Props) {
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
