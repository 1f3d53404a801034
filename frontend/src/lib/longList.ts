/**
 * Where the rows of a list with millions of them are, while only those in sight are in the page.
 * Browsers draw nothing taller than some 17 million pixels, so a taller list is scrolled at a rate: the scrollbar
 * still says where in the whole one is. A place in the list is told in its own pixels, so that it stays when rows
 * are added and the rate changes.
 */

const TALLEST_PX = 16_000_000;

export interface LongList {
  /** Height of what scrolls. */
  height: number;
  /** The place that shows the last row at the bottom. */
  last: number;
  /** How much is scrolled at a place, and the place where so much is scrolled. */
  scrolledAt: (place: number) => number;
  placeAt: (scrolled: number) => number;
  /** Rows in sight, from 0; `end` is not among them. */
  inSight: (place: number) => { begin: number; end: number };
  /** Where a row begins within what scrolls. */
  topOf: (row: number, place: number) => number;
  /** The place that shows a row a third from the top. */
  placeOf: (row: number) => number;
}

export function longList(rows: number, rowPx: number, viewPx: number): LongList {
  const whole = rows * rowPx;
  const height = Math.min(whole, TALLEST_PX);
  const last = Math.max(0, whole - viewPx);
  const rate = height > viewPx ? last / (height - viewPx) : 1;
  const within = (row: number) => Math.min(rows, Math.max(0, row));
  return {
    height,
    last,
    scrolledAt: (place) => place / rate,
    placeAt: (scrolled) => scrolled * rate,
    inSight: (place) => ({ begin: within(Math.floor(place / rowPx)), end: within(Math.ceil((place + viewPx) / rowPx)) }),
    topOf: (row, place) => row * rowPx - place + place / rate,
    placeOf: (row) => Math.min(last, Math.max(0, row * rowPx - viewPx / 3)),
  };
}
