import { useEffect, useState, type RefObject } from "react";

/** Rows rendered above and below the visible ones, for smooth scrolling. */
const MARGIN_ROWS = 24;
/** Rows are added in batches, so that most scrolls do not re-render. */
const BATCH_ROWS = 8;
/** The minimum row height, used before a row has been measured. */
const MIN_ROW_PX = 32;

/** The last measured height, so that a list that is shown again has the same height and scroll position. */
let lastRowPx = 0;

interface VisibleRows {
  start: number;
  /** Exclusive. */
  end: number;
  /** Zero until a row has been measured. */
  rowPx: number;
}

/**
 * The visible rows of a table, whether its box or the page scrolls. All rows have the same height, which is
 * measured from a row with `data-row`.
 */
export function useVirtualRows(box: RefObject<HTMLElement | null>, count: number): VisibleRows {
  const [visible, setVisible] = useState<VisibleRows>(() => ({
    start: 0,
    end: Math.max(MARGIN_ROWS, Math.ceil(window.innerHeight / MIN_ROW_PX)),
    rowPx: lastRowPx,
  }));
  useEffect(() => {
    let frame = 0;
    function measure(): void {
      frame = 0;
      const rows = box.current === null ? null : measureRows(box.current);
      if (rows !== null) setVisible((old) => (same(old, rows) ? old : rows));
    }
    function schedule(): void {
      if (frame === 0) frame = requestAnimationFrame(measure);
    }
    schedule();
    window.addEventListener("scroll", schedule, { capture: true, passive: true });
    window.addEventListener("resize", schedule);
    return () => {
      cancelAnimationFrame(frame);
      window.removeEventListener("scroll", schedule, { capture: true });
      window.removeEventListener("resize", schedule);
    };
  }, [box, count]);
  if (visible.rowPx === 0) return { start: 0, end: Math.min(count, visible.end), rowPx: 0 };
  return { start: Math.min(visible.start, count), end: Math.min(visible.end, count), rowPx: visible.rowPx };
}

function measureRows(box: HTMLElement): VisibleRows | null {
  const row = box.querySelector("[data-row]");
  const body = row?.parentElement;
  if (row === null || body === null || body === undefined) return null;
  const rowPx = row.getBoundingClientRect().height;
  if (rowPx === 0) return null;
  lastRowPx = rowPx;
  const outer = box.getBoundingClientRect();
  const from = body.getBoundingClientRect().top;
  const top = Math.max(0, outer.top) - from;
  const bottom = Math.min(window.innerHeight, outer.bottom) - from;
  return { ...rowsBetween(top, bottom, rowPx), rowPx };
}

/** The rows between two heights, with a margin, in full batches. */
export function rowsBetween(top: number, bottom: number, rowPx: number): { start: number; end: number } {
  const start = Math.floor((top / rowPx - MARGIN_ROWS) / BATCH_ROWS) * BATCH_ROWS;
  const end = Math.ceil((bottom / rowPx + MARGIN_ROWS) / BATCH_ROWS) * BATCH_ROWS;
  return { start: Math.max(0, start), end: Math.max(0, end) };
}

function same(one: VisibleRows, other: VisibleRows): boolean {
  return one.start === other.start && one.end === other.end && one.rowPx === other.rowPx;
}
