interface Props {
  /** Number of the series colour, 1 to 8. */
  color: number;
  dash?: boolean | undefined;
}

/** A short sample of a chart's line, for legends. */
export function LineSwatch({ color, dash = false }: Props) {
  return (
    <span
      aria-hidden
      className={`inline-block h-0 w-4 shrink-0 border-t-2 ${dash ? "border-dashed" : ""}`}
      style={{ borderColor: `var(--color-series-${color})` }}
    />
  );
}
