/**
 * Curves of several runs over one x axis. Their points are at different positions, but a plot needs common ones.
 */

export interface Curve {
  x: readonly number[];
  values: readonly number[];
}

export interface AlignedCurves {
  x: number[];
  /** Values by curve; null where it has no point. */
  values: (number | null)[][];
}

/**
 * Puts the curves on common positions: all of the curves' positions if there are at most `maxPoints`, otherwise two per equal
 * bucket, which hold a curve's minimum and maximum in that bucket in their original order. So no spike is lost.
 */
export function alignCurves(curves: readonly Curve[], maxPoints: number): AlignedCurves {
  const positions = new Set<number>();
  for (const { x } of curves) {
    for (const at of x) positions.add(at);
    if (positions.size > maxPoints) return alignByBuckets(curves, Math.floor(maxPoints / 2));
  }
  return alignExactly(curves, Float64Array.from(positions).sort());
}

function alignExactly(curves: readonly Curve[], x: Float64Array): AlignedCurves {
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

function alignByBuckets(curves: readonly Curve[], buckets: number): AlignedCurves {
  const first = Math.min(...curves.map(({ x }) => x[0] ?? Infinity));
  const width = (Math.max(...curves.map(({ x }) => x[x.length - 1] ?? -Infinity)) - first) / buckets;
  const x = Array.from({ length: 2 * buckets }, (_, index) => first + (index / 2 + 0.25) * width);
  return { x, values: curves.map((curve) => extremes(curve, first, width, buckets)) };
}

function extremes(curve: Curve, first: number, width: number, buckets: number): (number | null)[] {
  const row = new Array<number | null>(2 * buckets).fill(null);
  curve.x.forEach((at, index) => {
    const value = finite(curve.values[index]);
    if (value === null) return;
    const left = 2 * Math.min(buckets - 1, Math.floor((at - first) / width));
    const [low, high] = [row[left] ?? null, row[left + 1] ?? null];
    if (low === null) row[left] = value;
    else if (high === null) row[left + 1] = value;
    // The new value replaces the one between the other two, and the order is kept.
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
