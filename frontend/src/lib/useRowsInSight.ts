import { useEffect, useState, type RefObject } from "react";

/** Drawn above and below what is in sight, so that a scroll finds rows there. */
const MARGIN_ROWS = 24;
/** Rows come and go in bunches, so that most scrolls draw nothing anew. */
const BUNCH_ROWS = 8;
/** No row is lower: how many fill the window before one was measured. */
const LEAST_ROW_PX = 32;

/** As they were measured last, so that a list that comes back is as high as it was, and its place can be found again. */
let lastRowPx = 0;

interface Rows {
  begin: number;
  /** Not among them. */
  end: number;
  /** Zero until one was measured. */
  rowPx: number;
}

/**
 * Which rows of a table are in sight, however it is scrolled: within its box or with the page. Its rows have one
 * height, which is measured at a row with `data-row`.
 */
export function useRowsInSight(box: RefObject<HTMLElement | null>, count: number): Rows {
  const [seen, setSeen] = useState<Rows>(() => ({
    begin: 0,
    end: Math.max(MARGIN_ROWS, Math.ceil(window.innerHeight / LEAST_ROW_PX)),
    rowPx: lastRowPx,
  }));
  useEffect(() => {
    let asked = 0;
    function look(): void {
      asked = 0;
      const rows = box.current === null ? null : rowsIn(box.current);
      if (rows !== null) setSeen((old) => (same(old, rows) ? old : rows));
    }
    function soon(): void {
      if (asked === 0) asked = requestAnimationFrame(look);
    }
    soon();
    window.addEventListener("scroll", soon, { capture: true, passive: true });
    window.addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(asked);
      window.removeEventListener("scroll", soon, { capture: true });
      window.removeEventListener("resize", soon);
    };
  }, [box, count]);
  if (seen.rowPx === 0) return { begin: 0, end: Math.min(count, seen.end), rowPx: 0 };
  return { begin: Math.min(seen.begin, count), end: Math.min(seen.end, count), rowPx: seen.rowPx };
}

function rowsIn(box: HTMLElement): Rows | null {
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

/** The rows that lie between two heights, with a margin, in whole bunches. */
export function rowsBetween(top: number, bottom: number, rowPx: number): { begin: number; end: number } {
  const begin = Math.floor((top / rowPx - MARGIN_ROWS) / BUNCH_ROWS) * BUNCH_ROWS;
  const end = Math.ceil((bottom / rowPx + MARGIN_ROWS) / BUNCH_ROWS) * BUNCH_ROWS;
  return { begin: Math.max(0, begin), end: Math.max(0, end) };
}

function same(one: Rows, other: Rows): boolean {
  return one.begin === other.begin && one.end === other.end && one.rowPx === other.rowPx;
}
