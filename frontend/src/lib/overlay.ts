/** Curves of several runs over one x axis. Their points lie at other places, and a drawing needs them at common ones. */

export interface Curve {
  x: readonly number[];
  values: readonly number[];
}

export interface Overlay {
  x: number[];
  /** By curve; null where it has no point. */
  values: (number | null)[][];
}

/**
 * The curves at common places: at all of their own while these are at most `most`, else two in each of equal stretches,
 * which hold a curve's least and greatest value there in the order in which they came. So every spike stays.
 */
export function overlay(curves: readonly Curve[], most: number): Overlay {
  const places = new Set<number>();
  for (const { x } of curves) {
    for (const at of x) places.add(at);
    if (places.size > most) return stretched(curves, Math.floor(most / 2));
  }
  return exact(curves, Float64Array.from(places).sort());
}

function exact(curves: readonly Curve[], x: Float64Array): Overlay {
  const indices = new Map(Array.from(x, (at, index) => [at, index]));
  const values = curves.map((curve) => {
    const row = new Array<number | null>(x.length).fill(null);
    curve.x.forEach((at, index) => {
      row[indices.get(at) ?? 0] = finite(curve.values[index]);
    });
    return row;
  });
  return { x: [...x], values };
}

function stretched(curves: readonly Curve[], stretches: number): Overlay {
  const first = Math.min(...curves.map(({ x }) => x[0] ?? Infinity));
  const width = (Math.max(...curves.map(({ x }) => x[x.length - 1] ?? -Infinity)) - first) / stretches;
  const x = Array.from({ length: 2 * stretches }, (_, index) => first + (index / 2 + 0.25) * width);
  return { x, values: curves.map((curve) => extremes(curve, first, width, stretches)) };
}

function extremes(curve: Curve, first: number, width: number, stretches: number): (number | null)[] {
  const row = new Array<number | null>(2 * stretches).fill(null);
  curve.x.forEach((at, index) => {
    const value = finite(curve.values[index]);
    if (value === null) return;
    const left = 2 * Math.min(stretches - 1, Math.floor((at - first) / width));
    const [low, high] = [row[left] ?? null, row[left + 1] ?? null];
    if (low === null) row[left] = value;
    else if (high === null) row[left + 1] = value;
    // The newcomer takes the place of the one between the other two, and the order stays.
    else if (isBetween(high, low, value)) row[left + 1] = value;
    else if (isBetween(low, high, value)) [row[left], row[left + 1]] = [high, value];
  });
  return row;
}

function isBetween(value: number, one: number, other: number): boolean {
  return value >= Math.min(one, other) && value <= Math.max(one, other);
}

function finite(value: number | undefined): number | null {
  return value !== undefined && Number.isFinite(value) ? value : null;
}
