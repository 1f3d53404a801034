import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Run } from "@/api/types";
import { Chart } from "@/components/charts/Chart";
import type { ChartLine, ChartScale, ChartZoom } from "@/components/charts/chartOptions";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Skeleton } from "@/components/Skeleton";
import { ZoomBar } from "@/components/charts/ZoomBar";
import { ChartControls } from "@/features/metrics/charts/ChartControls";
import { ceilingOf } from "@/features/metrics/compare/ceiling";
import { combineResults, comparedQuery, liveQuery, type StepRange } from "@/features/metrics/compare/compareQueries";
import { lineStyle, type ChangeView, type CompareView } from "@/features/metrics/compare/compareView";
import { SeriesMenu } from "@/features/metrics/compare/SeriesMenu";
import { smoothingOf } from "@/features/metrics/charts/seriesStyle";
import { useSeriesStyle } from "@/features/metrics/charts/useSeriesStyle";
import { useZoom } from "@/features/metrics/charts/useZoom";
import { count, duration, short } from "@/lib/format";
import { alignCurves } from "@/features/metrics/compare/alignCurves";
import { isFinal } from "@/lib/runs/runProgress";
import { axisScale, lastStep, smooth, type Axis, type Columns, type AxisScale } from "@/lib/charts/series";
import { useDelayedCommit } from "@/lib/hooks/useDelayedCommit";
import { uniqueNames } from "@/lib/uniqueNames";

interface Props {
  team: string;
  /** Runs by id; those that could not be loaded are missing. */
  runs: ReadonlyMap<string, Run>;
  view: CompareView;
  onChange: ChangeView;
}

/** One run's line in every chart. */
interface ComparedRun {
  id: string;
  label: string;
  index: number;
  axis: AxisScale;
  columns: Columns;
}

const IDENTITY_SCALE: AxisScale = { at: (value) => value, stepAt: (value) => value };
const MAX_POINTS = 800;

const X_NAMES: Record<Axis, string> = { step: "step", tokens: "tokens", time: "training time" };
const X_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: short, time: duration };
const WINDOW_TEXTS: Record<Axis, (value: number) => string> = {
  step: (value) => `step ${count(value)}`,
  tokens: (value) => `${short(value)} tokens`,
  time: duration,
};

/** The same series of several runs, one chart each, with a shared crosshair. */
export function CompareCharts({ team, runs, view, onChange }: Props) {
  const [chart, setChart] = useDelayedCommit(view.chart, (next) => {
    onChange(() => ({ chart: next }));
  });
  const { x: axisName, window } = chart;
  const bounds = window !== null && "from" in window ? window : null;
  const comparedRuns = view.runs.flatMap((id) => runs.get(id) ?? []);
  const request = { team, runs: view.runs, series: view.series, axis: axisName };
  const liveIds = comparedRuns.filter(({ state }) => !isFinal(state)).map(({ id }) => id);
  const fullRange = useQueries({
    queries: [comparedQuery(request), ...(liveIds.length === 0 ? [] : [liveQuery({ ...request, runs: liveIds })])],
    combine: combineResults,
  });
  const steps = bounds && stepsOf([...fullRange.columns.values()], axisName, bounds);
  const windowed = useQuery({ ...comparedQuery(request, steps), enabled: steps !== null });
  const ids = view.runs.join(",");
  const zoomed = bounds !== null;
  const names = useMemo(() => uniqueNames([...runs.values()]), [runs]);
  const compared = useMemo(
    () =>
      ids.split(",").flatMap((id, index): ComparedRun[] => {
        const known = fullRange.columns.get(id);
        if (known === undefined) return [];
        const columns = (zoomed ? windowed.data?.get(id) : undefined) ?? known;
        return [{ id, label: names.get(id) ?? id, index, axis: axisScale(known, axisName), columns }];
      }),
    [fullRange.columns, windowed.data, zoomed, axisName, ids, names],
  );
  const newest = useMemo(
    () => Math.ceil(Math.max(0, ...[...fullRange.columns.values()].map((columns) => axisScale(columns, axisName).at(lastStep(columns))))),
    [fullRange.columns, axisName],
  );
  const zoom = useZoom({
    axis: IDENTITY_SCALE,
    newest,
    window: bounds,
    isGrowing: false,
    unit: WINDOW_TEXTS[axisName],
    onWindow: (next) => {
      setChart({ ...chart, window: next });
    },
  });
  const hidden = [...view.hidden].join(",");
  const shown = useMemo(() => compared.filter(({ id }) => !hidden.split(",").includes(id)), [compared, hidden]);
  // All charts have the same x axis, although a series may begin late or end early.
  const seriesNames = view.series.join(",");
  const wholeRange = useMemo(() => xRangeOf(shown, seriesNames.split(",")), [shown, seriesNames]);
  const chartZoom = useMemo(() => ({ ...zoom, range: zoom.range ?? wholeRange }), [zoom, wholeRange]);
  const isPlaceholder = zoomed && windowed.isFetching;
  const known = [...new Set([...runs.values()].flatMap(({ summary }) => Object.keys(summary.values)))];
  return (
    <section aria-label="Curves" aria-busy={fullRange.pending}>
      <ChartControls
        view={chart}
        showMarkerLegend={false}
        onChange={(next) => {
          setChart({ ...next, window: next.x === axisName ? next.window : null });
        }}
      >
        <SeriesMenu
          known={known}
          chosen={view.series}
          onChange={(series) => {
            onChange(() => ({ series }));
          }}
        />
        <ZoomBar zoom={zoom} error={zoomed ? windowed.error : null} />
      </ChartControls>
      {fullRange.error !== null && (
        <div className="mb-3">
          <ErrorNote error={fullRange.error} />
        </div>
      )}
      {compared.length === 0 && fullRange.pending ? (
        <Skeleton rows={1} height={280} />
      ) : view.series.length === 0 ? (
        <EmptyState title="No series selected.">Select one under “series”.</EmptyState>
      ) : (
        <div className="grid grid-cols-2 gap-3 max-tablet:grid-cols-1">
          {view.series.map((name) => (
            <ComparedChart key={name} name={name} runs={shown} compared={view.runs.length} axis={axisName} zoom={chartZoom} isPlaceholder={isPlaceholder} weight={chart.smooth} log={chart.y === "log"} />
          ))}
        </div>
      )}
    </section>
  );
}

interface ChartProps {
  name: string;
  runs: readonly ComparedRun[];
  /** Number of runs, including hidden ones. */
  compared: number;
  axis: Axis;
  zoom: ChartZoom;
  isPlaceholder: boolean;
  weight: number;
  log: boolean;
}

const LOSS_SERIES: ReadonlySet<string> = new Set(["loss", "validation_loss"]);
/** Series that explode when a run diverges. */
const DIVERGING_SERIES: ReadonlySet<string> = new Set([...LOSS_SERIES, "grad_norm"]);

function ComparedChart({ name, runs, compared, axis, zoom, isPlaceholder, weight, log }: ChartProps) {
  const style = useSeriesStyle()(name);
  const { x, lines } = useMemo(() => {
    const known = runs.filter(({ columns }) => columns[name] !== undefined);
    const curves = known.map(({ axis: { at }, columns }) => {
      const { steps, values } = columns[name] ?? { steps: [], values: [] };
      return { x: steps.map(at), values };
    });
    const common = alignCurves(curves, MAX_POINTS);
    const smoothing = smoothingOf(name, weight);
    const lines = known.map(({ label, index }, at): ChartLine => {
      const fullRange = curves[at]?.values ?? [];
      // As on a run's page, the caption says what was measured.
      const end = fullRange.at(-1) ?? null;
      const raw = common.values[at] ?? [];
      return { label, ...lineStyle(index, compared), values: smooth(raw, smoothing), raw, hideRaw: true, end };
    });
    return { x: common.x, lines };
  }, [name, runs, compared, weight]);
  const isLog = log && LOSS_SERIES.has(name);
  const ceiling = useMemo(
    () => (DIVERGING_SERIES.has(name) && !isLog ? ceilingOf(lines, x, zoom.range) : undefined),
    [name, isLog, lines, x, zoom.range],
  );
  if (lines.length === 0) {
    return (
      <section className="panel flex min-w-0 flex-col p-3">
        <h2 className="font-medium">{style.title}</h2>
        <p className="mt-2 text-small text-soft">None of these runs recorded it.</p>
      </section>
    );
  }
  const scale: ChartScale = isLog ? "log" : style.scale;
  return (
    <Chart
      title={style.title}
      group="compare"
      x={x}
      xName={X_NAMES[axis]}
      xText={X_TEXTS[axis]}
      lines={lines}
      yText={style.text}
      axisText={style.axisText}
      scale={scale}
      markers={NO_MARKERS}
      zoom={zoom}
      isPlaceholder={isPlaceholder}
      legend={false}
      isLabelled={compared > 1}
      ceiling={ceiling}
    >
      {ceiling !== undefined && (
        <p className="text-small text-soft">
          Values above {style.text(ceiling)} are cut off.{LOSS_SERIES.has(name) && " A logarithmic axis shows them."}
        </p>
      )}
    </Chart>
  );
}

const NO_MARKERS: never[] = [];

/** From the first to the last point of all runs' series; null if that is not a range. */
function xRangeOf(runs: readonly ComparedRun[], names: readonly string[]): [number, number] | null {
  const ends = runs.flatMap(({ axis: { at }, columns }) =>
    names.flatMap((name) => {
      const { steps } = columns[name] ?? { steps: [] };
      const [first, last] = [steps[0], steps.at(-1)];
      return first === undefined || last === undefined ? [] : [at(first), at(last)];
    }),
  );
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  return low < high ? [low, high] : null;
}

/**
 * The steps within a range of the x axis in any of the runs, and one more on each side; null until they are known.
 */
function stepsOf(runs: readonly Columns[], axis: Axis, { from, to }: StepRange): StepRange | null {
  if (runs.length === 0) return null;
  const axes = runs.map((columns) => axisScale(columns, axis));
  const start = Math.min(...axes.map(({ stepAt }) => Math.floor(stepAt(from))));
  return { from: Math.max(0, start - 1), to: Math.max(...axes.map(({ stepAt }) => Math.ceil(stepAt(to)))) + 1 };
}
