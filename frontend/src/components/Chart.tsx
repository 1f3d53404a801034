import { memo, useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode, type RefObject } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { chartOptions, type ChartLine, type ChartMark, type ChartScale, type ChartZoom, type LineStyle } from "@/components/chartOptions";
import { ChartTable } from "@/components/ChartTable";
import { LineSample } from "@/components/LineSample";
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
  /** Names its lines beside the title; false where a list on the page does. */
  legend?: boolean;
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
export const Chart = memo(function Chart({
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
  legend = true,
  controls,
  children,
}: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const pointedRef = useRef<(index: number | null) => void>(() => undefined);
  const [asTable, setAsTable] = useState(false);
  const scheme = useColorScheme();
  const data = useMemo<uPlot.AlignedData>(
    () => [x as number[], ...lines.flatMap(({ raw, values }) => (raw === undefined ? [values] : [raw, values]))],
    [x, lines],
  );
  const latest = useRef({ data, marks, zoom, xText, axisText });
  // New values arrive by setData; only other lines need another drawing.
  const scaleKey = JSON.stringify(scale);
  const stylesKey = JSON.stringify(lines.map(({ label, color, dash = false, raw }) => ({ label, color, dash, faint: raw !== undefined })));
  const styles = useMemo(() => JSON.parse(stylesKey) as LineStyle[], [stylesKey]);

  useEffect(() => {
    latest.current = { data, marks, zoom, xText, axisText };
    plot.current?.setData(data);
  }, [data, marks, zoom, xText, axisText]);

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
      xText: (value) => latest.current.xText(value),
      axisText: (value) => latest.current.axisText(value),
      marks: () => latest.current.marks,
      zoom: () => latest.current.zoom,
      onCursor: (index) => {
        pointedRef.current(index);
      },
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
  }, [asTable, group, styles, scaleKey, height, scheme]);

  const named = lines.length > 1;
  // A series without a point yet is not spoken of; the first is the chart itself.
  const shown = lines.filter(({ values }, index) => index === 0 || values.some(isKnown));
  return (
    <figure className="panel flex min-w-0 flex-col p-3">
      <div className="mb-1 flex flex-wrap items-center gap-x-3 text-small">
        <h2 className="text-body font-medium">{title}</h2>
        {controls}
        {named &&
          legend &&
          shown.map(({ label, color, dash }) => (
            <span key={label} className="flex items-center gap-1.5 text-soft">
              <LineSample color={color} dash={dash} />
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
      <Reading pointedRef={pointedRef} x={x} xName={xName} xText={xText} lines={shown} named={named} yText={yText} />
      {children}
    </figure>
  );

  function onKeyDown(event: KeyboardEvent): void {
    const move = KEYS[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    zoom?.onMove(move);
  }
});

interface ReadingProps {
  /** Is given what to call with the place that is pointed at. */
  pointedRef: RefObject<(index: number | null) => void>;
  x: readonly number[];
  xName: string;
  xText: (value: number) => string;
  lines: readonly ChartLine[];
  named: boolean;
  yText: (value: number) => string;
}

/** The values under the cross-hair, else the last ones. Apart from the chart, which a pointer does not make anew. */
function Reading({ pointedRef, x, xName, xText, lines, named, yText }: ReadingProps) {
  const [under, setUnder] = useState<number | null>(null);
  useEffect(() => {
    pointedRef.current = setUnder;
  }, [pointedRef]);
  const at = under !== null && under < x.length ? under : null;
  return (
    <figcaption className="mt-1 truncate text-small text-soft">
      {at === null
        ? `last ${told(lines, named, yText, ({ values, end }) => (end === undefined ? values.findLast(isKnown) : end))}`
        : // What is measured only now and then is read from its last time.
          `${xName} ${xText(x[at] ?? 0)}: ${told(lines, named, yText, ({ values }) => lastUpTo(values, at))}`}
    </figcaption>
  );
}

/** With more lines than this only the least and the greatest are told. */
const MOST_TOLD = 4;

function told(
  lines: readonly ChartLine[],
  named: boolean,
  yText: (value: number) => string,
  valueOf: (line: ChartLine) => number | null | undefined,
): string {
  const all = lines.map((line) => ({ label: line.label, value: valueOf(line) ?? null }));
  const known = all.filter(({ value }) => isKnown(value)).sort((a, b) => (a.value ?? 0) - (b.value ?? 0));
  const few = all.length <= MOST_TOLD;
  const [least, most] = [known[0], known[known.length - 1]];
  const one = ({ label, value }: (typeof all)[number]) => `${named ? `${label} ` : ""}${value === null ? NO_TEXT : yText(value)}`;
  if (few || least === undefined || most === undefined) return few ? all.map(one).join(", ") : NO_TEXT;
  return least === most ? one(least) : `${one(least)} to ${one(most)}`;
}

function lastUpTo(values: ChartLine["values"], index: number): number | undefined {
  for (let at = index; at >= 0; at -= 1) {
    const value = values[at];
    if (isKnown(value)) return value;
  }
  return undefined;
}

function isKnown(value: number | null | undefined): value is number {
  return value !== null && value !== undefined;
}
