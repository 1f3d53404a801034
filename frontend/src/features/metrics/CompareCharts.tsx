import { useQueries, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Run } from "@/api/types";
import { Chart } from "@/components/Chart";
import type { ChartLine, ChartScale, ChartZoom } from "@/components/chartOptions";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Skeleton } from "@/components/Skeleton";
import { ZoomBar } from "@/components/ZoomBar";
import { ChartControls } from "@/features/metrics/ChartControls";
import { combined, comparedQuery, liveQuery, type Steps } from "@/features/metrics/compareQueries";
import { lineLook, type ChangeView, type CompareView } from "@/features/metrics/compareView";
import { SeriesMenu } from "@/features/metrics/SeriesMenu";
import { seriesLook } from "@/features/metrics/seriesLooks";
import { useZoom } from "@/features/metrics/useZoom";
import { count, duration, short } from "@/lib/format";
import { overlay } from "@/lib/overlay";
import { isFinal } from "@/lib/runProgress";
import { axisOf, lastStep, smooth, type Axis, type Columns, type Position } from "@/lib/series";
import { useSettled } from "@/lib/useSettled";

interface Props {
  team: string;
  /** By id; those that could not be had are missing. */
  runs: ReadonlyMap<string, Run>;
  view: CompareView;
  onChange: ChangeView;
}

/** One run's line in every chart. */
interface Compared {
  id: string;
  label: string;
  index: number;
  axis: Position;
  columns: Columns;
}

const SAME: Position = { at: (value) => value, stepAt: (value) => value };
const PLACES = 800;

const X_NAMES: Record<Axis, string> = { step: "step", tokens: "tokens", time: "training time" };
const X_TEXTS: Record<Axis, (value: number) => string> = { step: count, tokens: short, time: duration };
const WINDOW_WORDS: Record<Axis, (value: number) => string> = {
  step: (value) => `step ${count(value)}`,
  tokens: (value) => `${short(value)} tokens`,
  time: duration,
};

/** The same series of several runs in one chart each, under one cross-hair. */
export function CompareCharts({ team, runs, view, onChange }: Props) {
  const [chart, setChart] = useSettled(view.chart, (next) => {
    onChange(() => ({ chart: next }));
  });
  const { x: axisName, window } = chart;
  const bounds = window !== null && "from" in window ? window : null;
  const wanted = view.runs.flatMap((id) => runs.get(id) ?? []);
  const wish = { team, runs: view.runs, series: view.series, axis: axisName };
  const going = wanted.filter(({ state }) => !isFinal(state)).map(({ id }) => id);
  const whole = useQueries({
    queries: [comparedQuery(wish), ...(going.length === 0 ? [] : [liveQuery({ ...wish, runs: going })])],
    combine: combined,
  });
  const steps = bounds && stepsOf([...whole.columns.values()], axisName, bounds);
  const close = useQuery({ ...comparedQuery(wish, steps), enabled: steps !== null });
  const ids = view.runs.join(",");
  const zoomed = bounds !== null;
  const compared = useMemo(
    () =>
      ids.split(",").flatMap((id, index): Compared[] => {
        const known = whole.columns.get(id);
        if (known === undefined) return [];
        const columns = (zoomed ? close.data?.get(id) : undefined) ?? known;
        return [{ id, label: runs.get(id)?.name ?? id, index, axis: axisOf(known, axisName), columns }];
      }),
    [whole.columns, close.data, zoomed, axisName, ids, runs],
  );
  const newest = useMemo(
    () => Math.ceil(Math.max(0, ...[...whole.columns.values()].map((columns) => axisOf(columns, axisName).at(lastStep(columns))))),
    [whole.columns, axisName],
  );
  const zoom = useZoom({
    axis: SAME,
    newest,
    window: bounds,
    grows: false,
    unit: WINDOW_WORDS[axisName],
    onWindow: (next) => {
      setChart({ ...chart, window: next });
    },
  });
  const hidden = [...view.hidden].join(",");
  const shown = useMemo(() => compared.filter(({ id }) => !hidden.split(",").includes(id)), [compared, hidden]);
  const coarse = zoomed && close.isFetching;
  const known = [...new Set([...runs.values()].flatMap(({ summary }) => Object.keys(summary.values)))];
  return (
    <section aria-label="Curves" aria-busy={whole.pending}>
      <ChartControls
        view={chart}
        marked={false}
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
        <ZoomBar zoom={zoom} error={zoomed ? close.error : null} />
      </ChartControls>
      {whole.error !== null && (
        <div className="mb-3">
          <ErrorNote error={whole.error} />
        </div>
      )}
      {compared.length === 0 && whole.pending ? (
        <Skeleton rows={1} height={280} />
      ) : view.series.length === 0 ? (
        <EmptyState title="No series is chosen.">Choose one under “series”.</EmptyState>
      ) : (
        <div className="grid grid-cols-2 gap-3 max-tablet:grid-cols-1">
          {view.series.map((name) => (
            <ComparedChart key={name} name={name} runs={shown} compared={view.runs.length} axis={axisName} zoom={zoom} coarse={coarse} weight={chart.smooth} log={chart.y === "log"} />
          ))}
        </div>
      )}
    </section>
  );
}

interface ChartProps {
  name: string;
  runs: readonly Compared[];
  /** How many there are, those that are not shown among them. */
  compared: number;
  axis: Axis;
  zoom: ChartZoom;
  coarse: boolean;
  weight: number;
  log: boolean;
}

const LOSSES: ReadonlySet<string> = new Set(["loss", "validation_loss"]);

function ComparedChart({ name, runs, compared, axis, zoom, coarse, weight, log }: ChartProps) {
  const look = seriesLook(name);
  const { x, lines } = useMemo(() => {
    const known = runs.filter(({ columns }) => columns[name] !== undefined);
    const curves = known.map(({ axis: { at }, columns }) => {
      const { steps, values } = columns[name] ?? { steps: [], values: [] };
      return { x: steps.map(at), values };
    });
    const common = overlay(curves, PLACES);
    const smoothing = name === "validation_loss" ? 0 : weight;
    const lines = known.map(({ label, index }, at): ChartLine => {
      const whole = curves[at]?.values ?? [];
      const end = (smoothing > 0 ? smooth(whole, smoothing) : whole).findLast((value) => value !== null) ?? null;
      return { label, ...lineLook(index, compared), values: smooth(common.values[at] ?? [], smoothing), end };
    });
    return { x: common.x, lines };
  }, [name, runs, compared, weight]);
  if (lines.length === 0) {
    return (
      <section className="panel flex min-w-0 flex-col p-3">
        <h2 className="font-medium">{look.title}</h2>
        <p className="mt-2 text-small text-soft">None of these runs has measured it.</p>
      </section>
    );
  }
  const scale: ChartScale = log && LOSSES.has(name) ? "log" : look.scale;
  return (
    <Chart
      title={look.title}
      group="compare"
      x={x}
      xName={X_NAMES[axis]}
      xText={X_TEXTS[axis]}
      lines={lines}
      yText={look.text}
      axisText={look.axisText}
      scale={scale}
      marks={NO_MARKS}
      zoom={zoom}
      coarse={coarse}
      legend={false}
    />
  );
}

const NO_MARKS: never[] = [];

/** The steps that a stretch of the x axis is of in any of the runs, and one more on either side; null before they are known. */
function stepsOf(runs: readonly Columns[], axis: Axis, { from, to }: Steps): Steps | null {
  if (runs.length === 0) return null;
  const axes = runs.map((columns) => axisOf(columns, axis));
  const begin = Math.min(...axes.map(({ stepAt }) => Math.floor(stepAt(from))));
  return { from: Math.max(0, begin - 1), to: Math.max(...axes.map(({ stepAt }) => Math.ceil(stepAt(to)))) + 1 };
}
