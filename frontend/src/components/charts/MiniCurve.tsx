interface Props {
  values: readonly number[];
  label: string;
}

const WIDTH = 100;
const HEIGHT = 40;

/** A curve without axes, as wide as its container. */
export function MiniCurve({ values, label }: Props) {
  const finite = values.filter(Number.isFinite);
  if (finite.length < 2) return <div aria-hidden className="h-14" />;
  const low = Math.min(...finite);
  const span = Math.max(...finite) - low || 1;
  const points = finite.map((value, index) => `${((index / (finite.length - 1)) * WIDTH).toFixed(2)},${(HEIGHT - ((value - low) / span) * HEIGHT).toFixed(2)}`);
  return (
    <svg role="img" aria-label={label} viewBox={`0 -1 ${WIDTH} ${HEIGHT + 2}`} preserveAspectRatio="none" className="block h-14 w-full">
      <polygon points={`0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`} fill="var(--color-series-1)" fillOpacity={0.12} />
      <polyline points={points.join(" ")} fill="none" stroke="var(--color-series-1)" strokeWidth={1.5} strokeLinejoin="round" vectorEffect="non-scaling-stroke" />
    </svg>
  );
}
