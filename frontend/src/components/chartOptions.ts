import uPlot from "uplot";
import type { WindowMove } from "@/lib/stepWindow";

export interface ChartLine {
  label: string;
  /** Number of the series colour, 1 to 8. */
  color: number;
  /** Drawn with gaps: from the ninth line on, colours repeat. */
  dash?: boolean | undefined;
  values: (number | null)[];
  /** The values before smoothing, drawn faintly behind. */
  raw?: (number | null)[] | undefined;
  /** What it ends at, where the values are extremes of stretches, of which the last need not come last. */
  end?: number | null | undefined;
}

/** What of a line does not change while its values do. */
export interface LineStyle {
  label: string;
  color: number;
  dash: boolean;
  /** The unsmoothed values are drawn behind. */
  faint: boolean;
}

export interface ChartMark {
  x: number;
  kind: "attempt" | "failure" | "checkpoint";
  label: string;
}

/** How the y axis runs: through the data, from zero, by powers of ten, or always over the same range and ticks. */
export type ChartScale = "fit" | "zero" | "log" | { low: number; high: number; ticks: number[] };

/** How the charts of one page are zoomed: all show the same stretch of the x axis. */
export interface ChartZoom {
  /** What is shown of the x axis; null: all that there is. */
  range: readonly [number, number] | null;
  /** The same in words: `steps 100 to 200`. */
  words: string;
  onSelect: (from: number, to: number) => void;
  onMove: (move: WindowMove) => void;
}

interface Wish {
  element: HTMLElement;
  group: string;
  lines: readonly LineStyle[];
  /** The colours are read anew for each scheme. */
  scheme: "light" | "dark";
  scale: ChartScale;
  height: number;
  xText: (value: number) => string;
  axisText: (value: number) => string;
  marks: () => readonly ChartMark[];
  /** Undefined where the chart does not zoom. */
  zoom: () => ChartZoom | undefined;
  onCursor: (index: number | null) => void;
}

/** Between ticks of x: a half step is none, and its number would be that of a neighbour. */
const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

const FONT = "11px 'Inter Variable', sans-serif";

const DASH = [5, 3];

/** Thin lines are told apart better where there are many, and drawn four times as fast. */
const MANY_LINES = 16;

/** A shorter drag is a click. */
const LEAST_DRAG_PX = 6;

/** The look of every chart: hairlines across, few ticks, one cross-hair for the group, marks on the x axis. */
export function chartOptions({ element, group, lines, scheme, scale, height, xText, axisText, marks, zoom, onCursor }: Wish): uPlot.Options {
  const color = (name: string) => colorOf(element, scheme, name);
  const [soft, line, warn, bad] = [color("soft"), color("line"), color("warn"), color("bad")];
  return {
    width: Math.max(1, element.clientWidth),
    height,
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: {
      y: false,
      // The cross-hair is shared; a selection is drawn in one chart and then holds for all.
      sync: { key: group, setSeries: false, filters: { pub: (type) => type !== "mousedown" && type !== "mouseup" } },
      drag: { x: zoom() !== undefined, y: false, setScale: false, dist: LEAST_DRAG_PX },
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
      y: scale === "log" ? { distr: 3 } : { range: (_plot, low, high) => yRange(scale, low, high) },
    },
    axes: [
      {
        stroke: soft,
        font: FONT,
        grid: { show: false },
        ticks: { show: false },
        gap: 4,
        size: 22,
        space: 60,
        incrs: WHOLE,
        values: (_plot, ticks) => ticks.map(xText),
      },
      {
        stroke: soft,
        font: FONT,
        grid: { stroke: line, width: 1 },
        ticks: { show: false },
        gap: 6,
        size: 44,
        space: 44,
        ...(typeof scale === "object" ? { splits: scale.ticks } : {}),
        values: (plot, ticks) => ticks.map((tick: number | null) => (tick === null || isEmpty(plot) ? "" : axisText(tick))),
      },
    ],
    series: [
      {},
      ...lines.flatMap(({ label, color: number, dash, faint }): uPlot.Series[] => {
        const stroke = color(`series-${number}`);
        const dashed = dash ? { dash: DASH } : {};
        const strong: uPlot.Series = { label, stroke, width: lines.length > MANY_LINES ? 1 : 1.5, ...dashed, spanGaps: true, points: { show: hasFew, size: 5, fill: stroke } };
        return faint ? [{ ...strong, alpha: 0.25, width: 1, points: { show: false } }, strong] : [strong];
      }),
    ],
    hooks: {
      draw: [
        (plot) => {
          drawMarks(plot, marks(), { attempt: warn, failure: bad, checkpoint: soft });
        },
      ],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < LEAST_DRAG_PX) return;
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

const FEW_POINTS = 8;

/** A line through few points hides them, and a single one has no line at all. */
function hasFew(plot: uPlot, series: number): boolean {
  let points = 0;
  for (const value of plot.data[series] ?? []) {
    if (value !== null) points += 1;
    if (points === FEW_POINTS) return false;
  }
  return true;
}

const COLORS = new Map<string, string>();

/** A custom property may hold `light-dark(…)`, which only a real element resolves: once, since each time lays out the page. */
function colorOf(element: HTMLElement, scheme: string, name: string): string {
  const key = `${scheme} ${name}`;
  const known = COLORS.get(key);
  if (known !== undefined) return known;
  const probe = document.createElement("span");
  probe.style.color = `var(--color-${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  COLORS.set(key, color);
  return color;
}

/** Of an axis without a value every tick is made up. */
function isEmpty({ data }: uPlot): boolean {
  for (const values of data.slice(1)) for (const value of values) if (typeof value === "number") return false;
  return true;
}

/** uPlot gives null for both ends while there is no data. */
function yRange(scale: ChartScale, low: number | null, high: number | null): uPlot.Range.MinMax {
  if (typeof scale === "object") return [scale.low, scale.high];
  if (low === null || high === null) return [0, 1];
  if (scale === "zero") return [0, high > 0 ? high * 1.1 : 1];
  const margin = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - margin, high + margin];
}

function drawMarks(plot: uPlot, marks: readonly ChartMark[], colors: Record<ChartMark["kind"], string>): void {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio;
  const [low = 0, high = 0] = [plot.scales["x"]?.min, plot.scales["x"]?.max];
  ctx.save();
  ctx.font = `${10 * ratio}px 'Inter Variable', sans-serif`;
  ctx.textBaseline = "top";
  for (const { x, kind, label } of marks) {
    if (x < low || x > high) continue;
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
      const fits = left + ctx.measureText(label).width + 6 * ratio < bbox.left + bbox.width;
      ctx.textAlign = fits ? "left" : "right";
      ctx.fillText(label, left + (fits ? 4 : -4) * ratio, bbox.top);
    } else if (kind === "failure") {
      cross(ctx, left, bottom - 14 * ratio, 3 * ratio);
    } else {
      triangle(ctx, left, bottom, 4 * ratio);
    }
  }
  ctx.restore();
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
