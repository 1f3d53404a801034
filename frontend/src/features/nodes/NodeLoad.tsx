import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Node, NodeLoad as Load } from "@/api/types";
import { Chart } from "@/components/charts/Chart";
import type { AxisText, ChartLine, ChartScale } from "@/components/charts/chartOptions";
import { LineSwatch } from "@/components/charts/LineSwatch";
import { Collapsible } from "@/components/Collapsible";
import { ErrorNote } from "@/components/ErrorNote";
import { Segmented } from "@/components/Segmented";
import { Skeleton } from "@/components/Skeleton";
import { bytesTick, celsiusText, percentText, percentTick, tick, wattsText } from "@/lib/charts/valueTexts";
import { nodeLoadQuery } from "@/features/nodes/queries";
import { bytes, clockTime } from "@/lib/format";

const HOURS = ["1", "4", "24"] as const;
const COLORS = 8;
const CHART_HEIGHT = 140;
const NO_MARKERS: [] = [];

interface LoadChart {
  title: string;
  /** Name of the series, or of the family that has one for each GPU. */
  series: string;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: AxisText;
}

const PERCENT: Pick<LoadChart, "scale" | "text" | "axisText"> = { scale: "zero", text: percentText, axisText: percentTick };
const BYTES: Pick<LoadChart, "scale" | "text" | "axisText"> = { scale: "bytes", text: bytes, axisText: bytesTick };

const CHARTS: LoadChart[] = [
  { title: "GPU utilization, %", series: "gpu_utilization", ...PERCENT },
  { title: "GPU memory", series: "gpu_memory_bytes", ...BYTES },
  { title: "GPU power", series: "gpu_power_watts", scale: "zero", text: wattsText, axisText: tick },
  { title: "GPU temperature", series: "gpu_temperature_celsius", scale: "zero", text: celsiusText, axisText: tick },
  { title: "CPU, %", series: "cpu_utilization", ...PERCENT },
  { title: "memory", series: "node_memory_bytes", ...BYTES },
  { title: "disk", series: "node_disk_bytes", ...BYTES },
];

/** The load of a node over the last hours, on demand. */
export function NodeLoad({ node }: { node: Node }) {
  return (
    <div className="-mx-4 mt-3">
      <Collapsible title="Load" summary="over the last hours">
        <LoadCharts node={node} />
      </Collapsible>
    </div>
  );
}

function LoadCharts({ node: { id, name } }: { node: Node }) {
  const [hours, setHours] = useState<(typeof HOURS)[number]>("24");
  const { data, error, isPlaceholderData } = useQuery({ ...nodeLoadQuery(id, Number(hours)), placeholderData: (before) => before });
  const x = useMemo(() => (data === undefined ? [] : timesOf(data)), [data]);
  if (data === undefined) return error === null ? <Skeleton rows={1} height={CHART_HEIGHT} /> : <ErrorNote error={error} />;
  const gpus = gpusOf(data);
  return (
    <>
      <div className="mb-3 flex flex-wrap items-center gap-x-3 gap-y-1 text-small text-soft">
        <span className="flex items-center gap-2">
          hours
          <Segmented label={`Hours of load of ${name}`} value={hours} options={HOURS} onChange={setHours} />
        </span>
        {gpus.length > 1 &&
          gpus.map(gpuStyle).map(({ label, color, dash }) => (
            <span key={label} className="flex items-center gap-1.5">
              <LineSwatch color={color} dash={dash} />
              {label}
            </span>
          ))}
      </div>
      {error !== null && <ErrorNote error={error} />}
      {data.series.length === 0 && <p className="text-small text-soft">Nothing was measured in this period. A node reports its load while its agent runs.</p>}
      <div className="grid grid-cols-4 gap-3 max-desk:grid-cols-2 max-tablet:grid-cols-1">
        {CHARTS.map(({ series, text, ...chart }) => {
          const lines = linesOf(data, series);
          if (lines.length === 0) return null;
          return (
            <Chart
              key={series}
              {...chart}
              group={`load of ${id}`}
              x={x}
              xName="time"
              xText={timeText}
              xAxis="time"
              lines={lines}
              legend={false}
              yText={text}
              markers={NO_MARKERS}
              isPlaceholder={isPlaceholderData}
              height={CHART_HEIGHT}
            />
          );
        })}
      </div>
    </>
  );
}

/** Start of each interval, in seconds since 1970. */
function timesOf({ start, interval_seconds: interval, series }: Load): number[] {
  const first = Date.parse(start) / 1_000;
  const length = Math.max(0, ...series.map(({ values }) => values.length));
  return Array.from({ length }, (_, index) => first + index * interval);
}

/** The line of a series, or those of all GPUs. */
function linesOf({ series }: Load, name: string): ChartLine[] {
  return series
    .filter((item) => item.name === name || item.name.startsWith(`${name}/`))
    .map(({ name: full, values }) => (full === name ? { label: "node", color: 1, values } : { ...gpuStyle(Number(full.slice(name.length + 1))), values }));
}

/** A GPU has the same style in all charts, also if its driver does not report everything. */
function gpuStyle(gpu: number): Omit<ChartLine, "values"> {
  return { label: `GPU ${gpu}`, color: (gpu % COLORS) + 1, dash: gpu >= COLORS };
}

/** The GPUs that have any series, by number. */
function gpusOf({ series }: Load): number[] {
  const numbers = series.flatMap(({ name }) => (name.includes("/") ? [Number(name.slice(name.indexOf("/") + 1))] : []));
  return [...new Set(numbers)].sort((a, b) => a - b);
}

function timeText(seconds: number): string {
  return clockTime(seconds * 1_000).slice(0, 5);
}
