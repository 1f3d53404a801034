import type { ReactNode, Ref } from "react";

interface Props {
  label: string;
  head: ReactNode;
  children: ReactNode;
  /** Columns have the widths that their heads say, and together no less than this; on phones as wide as the screen. */
  minWidthPx?: number;
  /** Rows of the whole list, where not all are in the page. */
  rowCount?: number;
  /** Scrolls within itself under a head that stays, but on phones. */
  tall?: boolean;
  ref?: Ref<HTMLDivElement>;
}

/** A table to the edge of its panel; it scrolls sideways rather than break its rows, by keyboard too. */
export function Table({ label, head, children, minWidthPx, rowCount, tall = false, ref }: Props) {
  return (
    <div
      ref={ref}
      className={`panel relative overflow-x-auto ${tall ? "tablet:max-h-[max(320px,calc(100dvh-14rem))] tablet:overflow-y-auto" : ""}`}
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
        <thead className={tall ? "tablet:sticky tablet:top-0 tablet:z-2 tablet:bg-surface tablet:shadow-[0_1px_0_var(--color-line)]" : ""}>
          <tr className={`h-8 ${tall ? "max-tablet:border-b" : "border-b"}`}>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export const rowClass = "border-b last:border-b-0 hover:bg-raised focus-within:bg-raised";
