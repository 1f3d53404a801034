import { Fragment, memo, useEffect, useMemo, useRef, useState, type KeyboardEvent, type ReactNode, type RefObject } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { chartOptions, isFaintDrawn, measuredValues, type AxisText, type ChartLine, type ChartMarker, type ChartScale, type ChartZoom, type LineStyle, type XAxisKind } from "@/components/charts/chartOptions";
import { ChartTable } from "@/components/charts/ChartTable";
import { LineSwatch } from "@/components/charts/LineSwatch";
import { TableToggle } from "@/components/charts/TableToggle";
import type { WindowMove } from "@/lib/charts/stepWindow";
import { useColorScheme } from "@/lib/hooks/useColorScheme";

interface Props {
  title: string;
  /** Charts in one group share a crosshair. */
  group: string;
  x: readonly number[];
  xName: string;
  xText: (value: number) => string;
  /** On a time axis, missing values are gaps; on others, lines connect the values around them. */
  xAxis?: XAxisKind;
  lines: readonly ChartLine[];
  yText: (value: number) => string;
  axisText?: AxisText;
  scale: ChartScale;
  markers: readonly ChartMarker[];
  /** Without it the chart cannot be zoomed. */
  zoom?: ChartZoom | undefined;
  /** Dimmed while better points are loading. */
  isPlaceholder?: boolean;
  height?: number;
  /** Names the lines next to the title; false if a list on the page does. */
  legend?: boolean;
  /** Whether the caption names the lines. */
  isLabelled?: boolean;
  /** Higher values are cut off, unless the scale is logarithmic. */
  ceiling?: number | undefined;
  /** Controls next to the title. */
  controls?: ReactNode;
  /** Explanation below the chart. */
  children?: ReactNode;
}

const MISSING_TEXT = "–";

const MOVE_BY_KEY: Record<string, WindowMove> = {
  "+": "in",
  "=": "in",
  "-": "out",
  ArrowLeft: "earlier",
  ArrowRight: "later",
  "0": "whole",
  Escape: "whole",
};

/** A chart over steps or time, with a caption of its latest values and the same data as a table. */
export const Chart = memo(function Chart({
  title,
  group,
  x,
  xName,
  xText,
  xAxis = "number",
  lines,
  yText,
  axisText = yText,
  scale,
  markers,
  zoom,
  isPlaceholder = false,
  height = 196,
  legend = true,
  isLabelled = lines.length > 1,
  ceiling,
  controls,
  children,
}: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const hoverRef = useRef<(index: number | null) => void>(() => undefined);
  const [asTable, setAsTable] = useState(false);
  const scheme = useColorScheme();
  const data = useMemo<uPlot.AlignedData>(
    () => [x as number[], ...lines.flatMap((line) => (isFaintDrawn(line) ? [measuredValues(line), line.values] : [line.values]))],
    [x, lines],
  );
  const latest = useRef({ data, markers, zoom, ceiling, xText, axisText });
  // New values are passed to setData; only other lines require a new plot.
  const scaleKey = JSON.stringify(scale);
  const stylesKey = JSON.stringify(lines.map((line) => ({ label: line.label, color: line.color, dash: line.dash ?? false, faint: isFaintDrawn(line) })));
  const styles = useMemo(() => JSON.parse(stylesKey) as LineStyle[], [stylesKey]);

  useEffect(() => {
    latest.current = { data, markers, zoom, ceiling, xText, axisText };
    plot.current?.setData(data);
  }, [data, markers, zoom, ceiling, xText, axisText]);

  useEffect(() => {
    const element = box.current;
    if (element === null || asTable) return;
    const options = chartOptions({
      element,
      xAxis,
      group,
      lines: styles,
      scheme,
      scale: JSON.parse(scaleKey) as ChartScale,
      height,
      xText: (value) => latest.current.xText(value),
      axisText: (value, step) => latest.current.axisText(value, step),
      markers: () => latest.current.markers,
      zoom: () => latest.current.zoom,
      ceiling: () => latest.current.ceiling,
      onCursor: (index) => {
        hoverRef.current(index);
      },
    });
    const uplot = new uPlot(options, latest.current.data, element);
    plot.current = uplot;
    const observer = new ResizeObserver(() => {
      uplot.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      uplot.destroy();
      plot.current = null;
    };
  }, [asTable, group, xAxis, styles, scaleKey, height, scheme]);

  // Series without points are not mentioned, except the first one.
  const shown = lines.filter(({ values }, index) => index === 0 || values.some(isKnown));
  const isEmpty = !lines.some(({ values }) => isInRange(x, values, zoom?.range ?? null));
  return (
    <figure className="panel flex min-w-0 flex-col p-3">
      <div className="mb-1 flex flex-wrap items-center gap-x-3 text-small">
        <h2 className="text-body font-medium">{title}</h2>
        {controls}
        {isLabelled &&
          legend &&
          shown.map(({ label, color, dash }) => (
            <span key={label} className="flex items-center gap-1.5 text-soft">
              <LineSwatch color={color} dash={dash} />
              {label}
            </span>
          ))}
        <TableToggle title={title} asTable={asTable} onChange={setAsTable} />
      </div>
      {asTable ? (
        <ChartTable title={title} x={x} xName={xName} xText={xText} lines={shown} yText={yText} height={height} />
      ) : (
        <div className={`relative min-w-0 transition-opacity duration-100 ${isPlaceholder ? "opacity-60" : ""}`} style={{ height }}>
          {isEmpty && <p className="pointer-events-none absolute inset-0 grid place-items-center text-small text-soft">No values in this range</p>}
          <div
            ref={box}
            className={`size-full min-w-0 [&_.u-select]:bg-accent/20 ${isEmpty ? "[&>*]:opacity-0" : ""}`}
            {...(zoom && {
              role: "slider",
              tabIndex: 0,
              "aria-label": `${title}: plus and minus zoom, arrow keys move, 0 shows the full run`,
              "aria-valuenow": x.length,
              "aria-valuetext": zoom.label,
              onKeyDown,
            })}
          />
        </div>
      )}
      <ChartCaption hoverRef={hoverRef} x={x} xName={xName} xText={xText} lines={isEmpty ? [] : shown} isLabelled={isLabelled} legend={legend} hasGaps={xAxis === "time"} yText={yText} />
      {children}
    </figure>
  );

  function onKeyDown(event: KeyboardEvent): void {
    const move = MOVE_BY_KEY[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    zoom?.onMove(move);
  }
});

interface ChartCaptionProps {
  /** Receives the callback for the hovered index. */
  hoverRef: RefObject<(index: number | null) => void>;
  x: readonly number[];
  xName: string;
  xText: (value: number) => string;
  lines: readonly ChartLine[];
  isLabelled: boolean;
  /** Whether the lines are named next to the title; if not, the caption shows their colours. */
  legend: boolean;
  /** Whether a missing value is unknown, instead of that of the value before. */
  hasGaps: boolean;
  yText: (value: number) => string;
}

/**
 * The values under the crosshair, else the last ones. A separate component, so that pointer moves do not re-render
 * the chart.
 */
function ChartCaption({ hoverRef, x, xName, xText, lines, isLabelled, legend, hasGaps, yText }: ChartCaptionProps) {
  const [hoverIndex, setHoverIndex] = useState<number | null>(null);
  useEffect(() => {
    hoverRef.current = setHoverIndex;
  }, [hoverRef]);
  const index = hoverIndex !== null && hoverIndex < x.length ? hoverIndex : null;
  const position = index === null ? `last${isLabelled ? ":" : ""}` : `${xName} ${xText(x[index] ?? 0)}:`;
  const valueOf = (line: ChartLine) => {
    if (hasGaps) return index === null ? newestValue(line) : measuredValues(line)[index];
    // Series measured only occasionally show their latest value.
    return index === null ? lastValue(line) : lastUpTo(measuredValues(line), index);
  };
  const values = lines.map((line) => ({ line, value: valueOf(line) }));
  const textOf = (value: CaptionValue["value"]) => (isKnown(value) ? yText(value) : MISSING_TEXT);
  const one = ({ line, value }: CaptionValue) => `${isLabelled ? `${line.label} ` : ""}${textOf(value)}`;
  if (isLabelled && lines.length > (legend ? MAX_SENTENCE_LINES : MAX_NAMED_LINES) && lines.length <= MAX_CAPTION_LINES) {
    return (
      <figcaption className="mt-1 grid grid-cols-[repeat(auto-fill,minmax(8rem,1fr))] gap-x-3 text-small text-soft tabular-nums">
        <span className="truncate">{position}</span>
        {values.toSorted(highestFirst).map(({ line, value }) => (
          <span key={line.label} className="flex min-w-0 items-center gap-1">
            {!legend && <LineSwatch color={line.color} dash={line.dash} />}
            <span className="truncate normal-nums" title={line.label}>
              {line.label}
            </span>{" "}
            <span className="shrink-0 text-text">{textOf(value)}</span>
          </span>
        ))}
      </figcaption>
    );
  }
  return (
    <figcaption className={`mt-1 min-h-4 truncate text-small text-soft ${isLabelled ? "normal-nums" : "tabular-nums"}`}>
      {lines.length > 0 && `${position} `}
      {lines.length > MAX_CAPTION_LINES
        ? rangeText(values, one)
        : values.map((value, at) => (
            <Fragment key={value.line.label}>
              {at > 0 && ", "}
              {isLabelled && !legend && <CaptionSwatch line={value.line} />}
              {one(value)}
            </Fragment>
          ))}
    </figcaption>
  );
}

/**
 * More lines than in a sentence form a grid, ordered as in the chart; of even more, only the ends are named. Without a
 * legend the names may be long, as those of runs.
 */
const MAX_SENTENCE_LINES = 4;
const MAX_NAMED_LINES = 2;
const MAX_CAPTION_LINES = 8;

interface CaptionValue {
  line: ChartLine;
  value: number | null | undefined;
}

function CaptionSwatch({ line: { color, dash } }: { line: ChartLine }) {
  return (
    <span className="mr-1 inline-flex align-middle">
      <LineSwatch color={color} dash={dash} />
    </span>
  );
}

function highestFirst(a: CaptionValue, b: CaptionValue): number {
  return (b.value ?? -Infinity) - (a.value ?? -Infinity);
}

function rangeText(values: readonly CaptionValue[], one: (value: CaptionValue) => string): string {
  const known = values.filter(({ value }) => isKnown(value)).sort(highestFirst);
  const [max, min] = [known[0], known[known.length - 1]];
  if (min === undefined || max === undefined) return MISSING_TEXT;
  return min === max ? one(min) : `${one(min)} to ${one(max)}`;
}

function lastValue(line: ChartLine): number | null | undefined {
  return line.end === undefined ? measuredValues(line).findLast(isKnown) : line.end;
}

/** Of the last two intervals: in the newest one, nothing may have been measured yet. */
function newestValue(line: ChartLine): number | null | undefined {
  return measuredValues(line).slice(-2).findLast(isKnown);
}

function lastUpTo(values: ChartLine["values"], index: number): number | undefined {
  for (let at = index; at >= 0; at -= 1) {
    const value = values[at];
    if (isKnown(value)) return value;
  }
  return undefined;
}

/** Whether a line is visible between two ends: it has points in between, or on both sides. */
function isInRange(x: readonly number[], values: ChartLine["values"], range: readonly [number, number] | null): boolean {
  const [low, high] = range ?? [-Infinity, Infinity];
  return values.some((value, index) => isKnown(value) && (x[index] ?? 0) >= low) && values.some((value, index) => isKnown(value) && (x[index] ?? 0) <= high);
}

function isKnown(value: number | null | undefined): value is number {
  return value !== null && value !== undefined;
}
