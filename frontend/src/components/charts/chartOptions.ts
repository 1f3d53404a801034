import uPlot from "uplot";
import type { WindowMove } from "@/lib/charts/stepWindow";

export interface ChartLine {
  label: string;
  /** Number of the series colour, 1 to 8. */
  color: number;
  /** Dashed: from the ninth line on, colours repeat. */
  dash?: boolean | undefined;
  values: (number | null)[];
  /** The values before smoothing: the caption and the table show them, and they are drawn faintly behind. */
  raw?: (number | null)[] | undefined;
  /** With many lines, the values before smoothing are not drawn. */
  hideRaw?: boolean | undefined;
  /** The last value. Needed if the values are extremes of buckets, whose last one need not be the newest. */
  end?: number | null | undefined;
}

/** The properties of a line that do not change with its values. */
export interface LineStyle {
  label: string;
  color: number;
  dash: boolean;
  /** Whether the unsmoothed values are drawn behind. */
  faint: boolean;
}

/** The values of a line as they were measured. */
export function measuredValues({ raw, values }: ChartLine): ChartLine["values"] {
  return raw ?? values;
}

/** Whether the values before smoothing are drawn behind a line. */
export function isFaintDrawn({ raw, hideRaw = false }: ChartLine): boolean {
  return raw !== undefined && !hideRaw;
}

export interface ChartMarker {
  x: number;
  kind: "attempt" | "failure" | "checkpoint";
  label: string;
}

/** The y axis: fitted to the data, from zero (`bytes`: with ticks at powers of two), logarithmic, or with a fixed range and ticks. */
export type ChartScale = "fit" | "zero" | "bytes" | "log" | { low: number; high: number; ticks: number[] };

/** The text of a tick; ticks that are `step` apart must differ. */
export type AxisText = (value: number, step: number) => string;

/** The zoom that all charts of a page share. */
export interface ChartZoom {
  /** The visible range of the x axis; null: everything. */
  range: readonly [number, number] | null;
  /** The range as text: `steps 100 to 200`. */
  label: string;
  onSelect: (from: number, to: number) => void;
  onMove: (move: WindowMove) => void;
}

/** What the x axis counts: whole numbers, or seconds since 1970. */
export type XAxisKind = "number" | "time";

interface ChartOptionsInput {
  element: HTMLElement;
  xAxis: XAxisKind;
  group: string;
  lines: readonly LineStyle[];
  /** Colours are resolved once per scheme. */
  scheme: "light" | "dark";
  scale: ChartScale;
  height: number;
  xText: (value: number) => string;
  axisText: AxisText;
  markers: () => readonly ChartMarker[];
  /** Undefined if the chart cannot be zoomed. */
  zoom: () => ChartZoom | undefined;
  /** Higher values are cut off. */
  ceiling?: () => number | undefined;
  onCursor: (index: number | null) => void;
}

/** Increments between x ticks: whole numbers only, because a fractional step would be labelled like its neighbour. */
const INTEGER_STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

/** Increments between x ticks of a time axis, in seconds: minutes and hours. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440].map((minutes) => 60 * minutes);

/** Increments between ticks of bytes: 4 GiB and 8 GiB rather than 3.7 and 7.5. */
const BINARY_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);

const FONT = "11px 'Inter Variable', sans-serif";

const DASH = [5, 3];

/** With many lines, thin ones are easier to distinguish and four times as fast to draw. */
const MANY_LINES = 16;

/** A shorter drag counts as a click. */
const MIN_DRAG_PX = 6;

/**
 * The common style of all charts: horizontal gridlines, few ticks, one crosshair per group, markers on the x axis.
 */
export function chartOptions({ element, xAxis, group, lines, scheme, scale, height, xText, axisText, markers, zoom, ceiling = () => undefined, onCursor }: ChartOptionsInput): uPlot.Options {
  const color = (name: string) => resolveColor(element, scheme, name);
  const [soft, line, warn, bad] = [color("soft"), color("line"), color("warn"), color("bad")];
  return {
    width: Math.max(1, element.clientWidth),
    height,
    padding: [8, (plot) => rightPadding(plot, xText), 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      // The crosshair is shared; a selection is drawn in one chart and then applies to all of them.
      sync: { key: group, setSeries: false, filters: { pub: (type) => type !== "mousedown" && type !== "mouseup" } },
      drag: { x: zoom() !== undefined, y: false, setScale: false, dist: MIN_DRAG_PX },
      bind: {
        dblclick: () => () => {
          zoom()?.onMove("whole");
          return null;
        },
      },
      points: { size: 6 },
    },
    scales: {
      x: { time: false, range: (_plot, low, high) => [...(zoom()?.range ?? [low, high])] as uPlot.Range.MinMax },
      y: scale === "log" ? { distr: 3 } : { range: (_plot, low, high) => yRange(scale, low, high, ceiling()) },
    },
    axes: [
      {
        stroke: soft,
        font: FONT,
        grid: { show: false },
        ticks: { show: false },
        gap: 4,
        size: 22,
        space: (_plot, _axis, low, high) => xSpace(xText, low, high),
        incrs: xAxis === "time" ? TIME_STEPS : INTEGER_STEPS,
        values: (_plot, ticks) => ticks.map(xText),
      },
      {
        stroke: soft,
        font: FONT,
        grid: { stroke: line, width: 1 },
        ticks: { show: false },
        gap: 6,
        size: (_plot, texts) => yAxisWidth(texts),
        space: MIN_Y_SPACE_PX,
        ...(typeof scale === "object" ? { splits: scale.ticks } : {}),
        ...(scale === "bytes" ? { incrs: BINARY_STEPS } : {}),
        values: (plot, ticks, _axis, _space, step) => ticks.map((tick: number | null) => (tick === null || isEmpty(plot) ? "" : axisText(tick, step))),
      },
    ],
    series: [
      {},
      ...lines.flatMap(({ label, color: number, dash, faint }): uPlot.Series[] => {
        const stroke = color(`series-${number}`);
        const dashed = dash ? { dash: DASH } : {};
        const strong: uPlot.Series = { label, stroke, width: lines.length > MANY_LINES ? 1 : 1.5, ...dashed, spanGaps: xAxis !== "time", points: { show: hasFewPoints, size: 5, fill: stroke } };
        return faint ? [{ ...strong, alpha: 0.25, width: 1, points: { show: false } }, strong] : [strong];
      }),
    ],
    hooks: {
      draw: [
        (plot) => {
          drawMarkers(plot, markers(), { attempt: warn, failure: bad, checkpoint: soft });
        },
      ],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < MIN_DRAG_PX) return;
          zoom()?.onSelect(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
      setCursor: [
        (plot) => {
          onCursor(plot.cursor.idx ?? null);
        },
      ],
    },
  };
}

/** The distance between y ticks: at least two fit into a chart of the usual height, mostly three or four. */
const MIN_Y_SPACE_PX = 36;

const MIN_Y_AXIS_PX = 44;
/** Left and right of a text. */
const Y_GAPS_PX = 12;

/** Room for the widest text of a tick, such as 512 MiB. */
function yAxisWidth(texts: readonly string[] | null): number {
  return Math.max(MIN_Y_AXIS_PX, widestPx(texts ?? []) + Y_GAPS_PX);
}

const MIN_X_SPACE_PX = 60;
const X_GAP_PX = 12;

/** The distance between x ticks: their texts must not touch. */
function xSpace(xText: (value: number) => string, low: number, high: number): number {
  return Math.max(MIN_X_SPACE_PX, widestPx(sampleTexts(xText, low, high)) + X_GAP_PX);
}

const MIN_RIGHT_PADDING_PX = 20;

/** Half of a text at the end of the x axis is right of the plot. */
function rightPadding(plot: uPlot, xText: (value: number) => string): number {
  const { min, max } = plot.scales["x"] ?? {};
  const texts = typeof min === "number" && typeof max === "number" ? sampleTexts(xText, min, max) : [];
  return Math.max(MIN_RIGHT_PADDING_PX, Math.ceil(widestPx(texts) / 2));
}

const SAMPLES = 4;

/** Texts of values in a range: the ticks are not known before their distance is. */
function sampleTexts(text: (value: number) => string, low: number, high: number): string[] {
  return Array.from({ length: SAMPLES + 1 }, (_, index) => text(Math.round(low + ((high - low) * index) / SAMPLES)));
}

function widestPx(texts: readonly string[]): number {
  return Math.ceil(Math.max(0, ...texts.map(widthPx)));
}

/** A canvas of its own: reading from one that is being drawn waits for the drawing. */
const MEASURING = document.createElement("canvas").getContext("2d");
const WIDTHS = new Map<string, number>();
const MAX_WIDTHS = 2_000;

/** Cached, because uPlot asks for the space of an axis several times per frame. */
function widthPx(text: string): number {
  const cached = WIDTHS.get(text);
  if (cached !== undefined) return cached;
  if (MEASURING === null) return 0;
  if (WIDTHS.size >= MAX_WIDTHS) WIDTHS.clear();
  MEASURING.font = FONT;
  const { width } = MEASURING.measureText(text);
  // Until the font has loaded, widths are those of another one.
  if (document.fonts.status === "loaded") WIDTHS.set(text, width);
  return width;
}

const FEW_POINTS = 8;

/** Shows points if a line has few of them; a single point has no line at all. */
function hasFewPoints(plot: uPlot, series: number): boolean {
  let points = 0;
  for (const value of plot.data[series] ?? []) {
    if (value !== null) points += 1;
    if (points === FEW_POINTS) return false;
  }
  return true;
}

const COLORS = new Map<string, string>();

/**
 * A custom property may contain `light-dark(…)`, which only a real element resolves. Cached, because each lookup
 * triggers a layout.
 */
function resolveColor(element: HTMLElement, scheme: string, name: string): string {
  const key = `${scheme} ${name}`;
  const cached = COLORS.get(key);
  if (cached !== undefined) return cached;
  const probe = document.createElement("span");
  probe.style.color = `var(--color-${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  COLORS.set(key, color);
  return color;
}

/** Without any value, uPlot makes up ticks. */
function isEmpty({ data }: uPlot): boolean {
  for (const values of data.slice(1)) for (const value of values) if (typeof value === "number") return false;
  return true;
}

/** uPlot passes null for both ends while there is no data. */
function yRange(scale: ChartScale, low: number | null, highest: number | null, ceiling = Infinity): uPlot.Range.MinMax {
  if (typeof scale === "object") return [scale.low, scale.high];
  if (low === null || highest === null) return [0, 1];
  const high = Math.min(highest, ceiling);
  if (scale === "zero" || scale === "bytes") return [0, high > 0 ? high * 1.1 : 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - margin, high + margin];
}

function drawMarkers(plot: uPlot, markers: readonly ChartMarker[], colors: Record<ChartMarker["kind"], string>): void {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio;
  const [low = 0, high = 0] = [plot.scales["x"]?.min, plot.scales["x"]?.max];
  ctx.save();
  ctx.font = `${10 * ratio}px 'Inter Variable', sans-serif`;
  ctx.textBaseline = "top";
  // Labels from left to right; one that would overprint its neighbour is left out, its line stays.
  let labelled = -Infinity;
  const ordered = markers.filter(({ x }) => x >= low && x <= high).sort((one, other) => one.x - other.x);
  for (const { x, kind, label } of ordered) {
    const left = Math.round(plot.valToPos(x, "x", true));
    const bottom = bbox.top + bbox.height;
    ctx.strokeStyle = ctx.fillStyle = colors[kind];
    ctx.lineWidth = ratio;
    if (kind === "attempt") {
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bottom);
      ctx.stroke();
      ctx.setLineDash([]);
      const width = ctx.measureText(label).width;
      const place = labelPlace(left, width, 4 * ratio, bbox.left + bbox.width, labelled);
      if (place !== null) {
        ctx.textAlign = "left";
        ctx.fillText(label, place, bbox.top);
        labelled = place + width;
      }
    } else if (kind === "failure") {
      cross(ctx, left, bottom - 14 * ratio, 3 * ratio);
    } else {
      triangle(ctx, left, bottom, 4 * ratio);
    }
  }
  ctx.restore();
}

/**
 * Where the label of a line at ``x`` starts: right of it, left of it if there is no room before ``end``, or nowhere if
 * it would reach back over ``taken``, the end of the previous label.
 */
export function labelPlace(x: number, width: number, gap: number, end: number, taken: number): number | null {
  const start = x + gap + width < end ? x + gap : x - gap - width;
  return start > taken + gap ? start : null;
}

function triangle(ctx: CanvasRenderingContext2D, x: number, bottom: number, size: number): void {
  ctx.beginPath();
  ctx.moveTo(x - size, bottom);
  ctx.lineTo(x + size, bottom);
  ctx.lineTo(x, bottom - 1.6 * size);
  ctx.fill();
}

function cross(ctx: CanvasRenderingContext2D, x: number, y: number, size: number): void {
  ctx.beginPath();
  ctx.moveTo(x - size, y - size);
  ctx.lineTo(x + size, y + size);
  ctx.moveTo(x - size, y + size);
  ctx.lineTo(x + size, y - size);
  ctx.stroke();
}
