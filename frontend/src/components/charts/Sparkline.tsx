const WIDTH = 72;
const HEIGHT = 20;

/** A small line chart without axes, as wide as its container. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  const finite = values.filter(Number.isFinite);
  if (finite.length < 2) return <svg aria-hidden width={WIDTH} height={HEIGHT} />;
  const low = Math.min(...finite);
  const span = Math.max(...finite) - low || 1;
  const points = finite.map((value, index) => {
    const x = 1 + (index / (finite.length - 1)) * (WIDTH - 2);
    const y = 2 + (1 - (value - low) / span) * (HEIGHT - 4);
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  return (
    <svg role="img" aria-label={label} height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" className="block w-full min-w-18">
      <polyline points={points.join(" ")} fill="none" stroke="var(--color-series-1)" strokeWidth={1.5} strokeLinejoin="round" vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
