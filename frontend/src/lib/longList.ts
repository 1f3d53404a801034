/**
 * Where the rows of a list with millions of them are, while only those in sight are in the page.
 * Browsers draw nothing taller than some 17 million pixels, so a taller list is scrolled at a rate: the scrollbar
 * still says where in the whole one is.
 */

const TALLEST_PX = 12_000_000;

export interface LongList {
  /** Height of what scrolls. */
  height: number;
  /** Rows in sight, from 0, when so much is scrolled; `end` is not among them. */
  inSight: (scrolled: number) => { begin: number; end: number };
  /** Where a row begins within what scrolls, while so much is scrolled. */
  topOf: (row: number, scrolled: number) => number;
  /** How much to scroll so that a row stands a third from the top. */
  scrollTo: (row: number) => number;
}

export function longList(rows: number, rowPx: number, viewPx: number): LongList {
  const whole = rows * rowPx;
  const height = Math.min(whole, TALLEST_PX);
  const rate = height > viewPx ? (whole - viewPx) / (height - viewPx) : 1;
  const within = (row: number) => Math.min(rows, Math.max(0, row));
  return {
    height,
    inSight: (scrolled) => ({
      begin: within(Math.floor((scrolled * rate) / rowPx)),
      end: within(Math.ceil((scrolled * rate + viewPx) / rowPx)),
    }),
    topOf: (row, scrolled) => row * rowPx - scrolled * (rate - 1),
    scrollTo: (row) => Math.max(0, row * rowPx - viewPx / 3) / rate,
  };
}
