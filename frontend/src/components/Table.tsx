import type { ReactNode, Ref } from "react";

interface Props {
  label: string;
  head: ReactNode;
  children: ReactNode;
  /**
   * Column widths are fixed by the header and add up to at least this; on phones the table is as wide as the
   * screen.
   */
  minWidthPx?: number;
  /** Number of rows in the full list, if not all of them are rendered. */
  rowCount?: number;
  /** The children are separate table bodies, one for each group of rows. */
  grouped?: boolean;
  /** Scrolls within the page under a sticky header, except on phones. */
  scrolls?: boolean;
  ref?: Ref<HTMLDivElement>;
}

/** A full-width table. It scrolls sideways instead of wrapping its rows, also by keyboard. */
export function Table({ label, head, children, minWidthPx, rowCount, grouped = false, scrolls = false, ref }: Props) {
  return (
    <div
      ref={ref}
      className={`panel relative overflow-x-auto ${minWidthPx === undefined ? "" : "@container"} ${scrolls ? "tablet:max-h-[max(320px,calc(100dvh-14rem))] tablet:overflow-y-auto" : ""}`}
      role="region"
      aria-label={label}
      tabIndex={0}
      data-scroll-restoration-id={label}
    >
      <table
        className={`w-full border-collapse text-left ${minWidthPx === undefined ? "" : "table-fixed tablet:min-w-(--table-px)"}`}
        style={minWidthPx === undefined ? undefined : { ["--table-px" as string]: `${minWidthPx}px` }}
        aria-rowcount={rowCount === undefined ? undefined : rowCount + 1}
      >
        <thead className={scrolls ? "tablet:sticky tablet:top-0 tablet:z-2 tablet:bg-surface tablet:shadow-[0_1px_0_var(--color-line)]" : ""}>
          <tr className={`h-8 ${scrolls ? "max-tablet:border-b" : "border-b"}`}>{head}</tr>
        </thead>
        {grouped ? children : <tbody>{children}</tbody>}
      </table>
    </div>
  );
}

export const rowClass = "border-b last:border-b-0 hover:bg-raised focus-within:bg-raised";
