/**
 * Positions of rows in a list with millions of them; only the visible ones are rendered. Browsers cannot
 * draw more than about 17 million pixels, so a taller list is scrolled at a higher rate: the scrollbar still shows
 * the position in the full list. Positions are in the list's own pixels, so that they stay valid when rows are
 * added and the rate changes.
 */

const MAX_HEIGHT_PX = 16_000_000;

export interface VirtualList {
  /** Height of the scrolled content. */
  height: number;
  /** The position that shows the last row at the bottom. */
  endPosition: number;
  /** Converts between a position and the browser's scroll offset. */
  scrollTopAt: (position: number) => number;
  positionAt: (scrolled: number) => number;
  /** Visible rows, from 0; `end` is exclusive. */
  visibleRows: (position: number) => { start: number; end: number };
  /** Top of a row within the scrolled content. */
  topOf: (row: number, position: number) => number;
  /** The position that shows a row a third from the top. */
  positionOf: (row: number) => number;
}

export function virtualList(rows: number, rowPx: number, viewPx: number): VirtualList {
  const totalPx = rows * rowPx;
  const height = Math.min(totalPx, MAX_HEIGHT_PX);
  const endPosition = Math.max(0, totalPx - viewPx);
  const rate = height > viewPx ? endPosition / (height - viewPx) : 1;
  const within = (row: number) => Math.min(rows, Math.max(0, row));
  return {
    height,
    endPosition,
    scrollTopAt: (position) => position / rate,
    positionAt: (scrolled) => scrolled * rate,
    visibleRows: (position) => ({ start: within(Math.floor(position / rowPx)), end: within(Math.ceil((position + viewPx) / rowPx)) }),
    topOf: (row, position) => row * rowPx - position + position / rate,
    positionOf: (row) => Math.min(endPosition, Math.max(0, row * rowPx - viewPx / 3)),
  };
}
