import { useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { chartOptions, type ChartLine, type ChartMark, type ChartScale, type ChartZoom, type LineStyle } from "@/components/chartOptions";
import { ChartTable } from "@/components/ChartTable";
import type { WindowMove } from "@/lib/stepWindow";
import { useColorScheme } from "@/lib/useColorScheme";

interface Props {
  title: string;
  /** Charts of one group share their cross-hair. */
  group: string;
  x: readonly number[];
  xName: string;
  xText: (value: number) => string;
  lines: readonly ChartLine[];
  yText: (value: number) => string;
  axisText?: (value: number) => string;
  scale: ChartScale;
  marks: readonly ChartMark[];
  /** Without it the chart shows all it has. */
  zoom?: ChartZoom | undefined;
  /** Dimmed while better points are on their way. */
  coarse?: boolean;
  height?: number;
  /** Choices beside the title. */
  controls?: ReactNode;
  /** What the chart shows and what is normal, below it. */
  children?: ReactNode;
}

const NO_TEXT = "–";

const KEYS: Record<string, WindowMove> = {
  "+": "in",
  "=": "in",
  "-": "out",
  ArrowLeft: "earlier",
  ArrowRight: "later",
  "0": "whole",
  Escape: "whole",
};

/** A chart over a run's course, with a caption that says its last values and a table of the same numbers. */
export function Chart({
  title,
  group,
  x,
  xName,
  xText,
  lines,
  yText,
  axisText = yText,
  scale,
  marks,
  zoom,
  coarse = false,
  height = 196,
  controls,
  children,
}: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [under, setUnder] = useState<number | null>(null);
  const [asTable, setAsTable] = useState(false);
  const scheme = useColorScheme();
  const data = useMemo<uPlot.AlignedData>(
    () => [x as number[], ...lines.flatMap(({ raw, values }) => (raw === undefined ? [values] : [raw, values]))],
    [x, lines],
  );
  const latest = useRef({ data, marks, zoom });
  // New values arrive by setData; only other lines need another drawing.
  const scaleKey = JSON.stringify(scale);
  const stylesKey = JSON.stringify(lines.map(({ label, color, raw }) => ({ label, color, faint: raw !== undefined })));
  const styles = useMemo(() => JSON.parse(stylesKey) as LineStyle[], [stylesKey]);

  useEffect(() => {
    latest.current = { data, marks, zoom };
    plot.current?.setData(data);
  }, [data, marks, zoom]);

  useEffect(() => {
    const element = box.current;
    if (element === null || asTable) return;
    const options = chartOptions({
      element,
      group,
      lines: styles,
      scheme,
      scale: JSON.parse(scaleKey) as ChartScale,
      height,
      xText,
      axisText,
      marks: () => latest.current.marks,
      zoom: () => latest.current.zoom,
      onCursor: setUnder,
    });
    const made = new uPlot(options, latest.current.data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      made.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [asTable, group, styles, scaleKey, height, xText, axisText, scheme]);

  const named = lines.length > 1;
  // A series without a point yet is not spoken of; the first is the chart itself.
  const shown = lines.filter(({ values }, index) => index === 0 || values.some((value) => value !== null));
  const at = under !== null && under < x.length ? under : null;
  return (
    <figure className="panel flex min-w-0 flex-col p-3">
      <div className="mb-1 flex flex-wrap items-center gap-x-3 text-small">
        <h2 className="text-body font-medium">{title}</h2>
        {controls}
        {named &&
          shown.map(({ label, color }) => (
            <span key={label} className="flex items-center gap-1.5 text-soft">
              <span aria-hidden className="h-0.5 w-3" style={{ background: `var(--color-series-${color})` }} />
              {label}
            </span>
          ))}
        <button
          type="button"
          aria-pressed={asTable}
          aria-label={`${title} as a table`}
          className="ml-auto rounded-box px-1 text-soft hover:text-accent"
          onClick={() => {
            setAsTable(!asTable);
          }}
        >
          {asTable ? "chart" : "table"}
        </button>
      </div>
      {asTable ? (
        <ChartTable title={title} x={x} xName={xName} xText={xText} lines={shown} yText={yText} height={height} />
      ) : (
        <div className={`min-w-0 transition-opacity duration-100 ${coarse ? "opacity-60" : ""}`} style={{ height }}>
          <div
            ref={box}
            className="size-full min-w-0 [&_.u-select]:bg-accent/20"
            {...(zoom && {
              role: "slider",
              tabIndex: 0,
              "aria-label": `${title}: plus and minus zoom, arrow keys move, 0 shows the whole run`,
              "aria-valuenow": x.length,
              "aria-valuetext": zoom.words,
              onKeyDown,
            })}
          />
        </div>
      )}
      <figcaption className="mt-1 truncate text-small text-soft">
        {at === null ? caption(shown, named, yText) : reading(at)}
      </figcaption>
      {children}
    </figure>
  );

  function onKeyDown(event: KeyboardEvent): void {
    const move = KEYS[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    zoom?.onMove(move);
  }

  function reading(index: number): string {
    const values = shown.map(({ label, values: row }) => {
      // What is measured only now and then is read from its last time.
      const value = row.slice(0, index + 1).findLast((one) => one !== null);
      const text = value === undefined ? NO_TEXT : yText(value);
      return named ? `${label} ${text}` : text;
    });
    return `${xName} ${xText(x[index] ?? 0)}: ${values.join(", ")}`;
  }
}

function caption(lines: readonly ChartLine[], named: boolean, yText: (value: number) => string): string {
  const parts = lines.map(({ label, values }) => {
    const value = values.findLast((one) => one !== null);
    const text = value === undefined ? NO_TEXT : yText(value);
    return named ? `${label} ${text}` : text;
  });
  return `last ${parts.join(", ")}`;
}
