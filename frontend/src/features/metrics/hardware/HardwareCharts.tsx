import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { AxisText, ChartScale } from "@/components/charts/chartOptions";
import { ErrorNote } from "@/components/ErrorNote";
import { SeriesChart, type ChartFrame, type SeriesPair } from "@/features/metrics/charts/SeriesChart";
import { bytesTick, celsiusText, coresText, percentText, percentTick, tick, wattsText } from "@/lib/charts/valueTexts";
import { MemberChart } from "@/features/metrics/hardware/MemberChart";
import { perRankSeriesQuery } from "@/features/metrics/live/metricsQuery";
import { lastValue } from "@/lib/charts/series";
import { bytes } from "@/lib/format";

interface Props {
  frame: ChartFrame;
  team: string;
  run: string;
  live: boolean;
  /** The number of trainer processes. */
  ranks: number;
}

interface HardwareChart {
  title: string;
  series: SeriesPair;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: AxisText;
  /** The series of each rank or GPU, drawn instead on demand. */
  members?: { family: string; title: string; label: "rank" | "GPU" };
}

const PERCENT: Pick<HardwareChart, "scale" | "text" | "axisText"> = { scale: "zero", text: percentText, axisText: percentTick };
const BYTES: Pick<HardwareChart, "scale" | "text" | "axisText"> = { scale: "bytes", text: bytes, axisText: bytesTick };

const CHARTS: HardwareChart[] = [
  { title: "GPU utilization, %", series: [{ label: "mean", name: "mean_gpu_utilization" }], ...PERCENT, members: { family: "gpu_utilization", title: "GPU utilization, %", label: "GPU" } },
  { title: "memory of the fullest GPU", series: [{ label: "fullest", name: "max_gpu_memory_bytes" }], ...BYTES, members: { family: "gpu_memory_bytes", title: "GPU memory", label: "GPU" } },
  {
    title: "power of all GPUs",
    series: [{ label: "all", name: "total_gpu_power_watts" }],
    scale: "zero",
    text: wattsText,
    axisText: tick,
    members: { family: "gpu_power_watts", title: "GPU power", label: "GPU" },
  },
  {
    title: "temperature of the hottest GPU",
    series: [{ label: "hottest", name: "max_gpu_temperature_celsius" }],
    scale: "zero",
    text: celsiusText,
    axisText: tick,
    members: { family: "gpu_temperature_celsius", title: "GPU temperature", label: "GPU" },
  },
  { title: "node CPU, %", series: [{ label: "node", name: "cpu_utilization" }], ...PERCENT },
  {
    title: "run CPU, cores",
    series: [{ label: "run", name: "run_cpu_cores" }],
    scale: "zero",
    text: coresText,
    axisText: tick,
    members: { family: "rank_cpu_cores", title: "CPU by rank, cores", label: "rank" },
  },
  {
    title: "memory",
    series: [
      { label: "node", name: "node_memory_bytes" },
      { label: "run", name: "run_memory_bytes" },
    ],
    ...BYTES,
    members: { family: "rank_memory_bytes", title: "memory by rank", label: "rank" },
  },
  { title: "node disk", series: [{ label: "used", name: "node_disk_bytes" }], ...BYTES },
];
const FAMILIES = CHARTS.flatMap(({ members }) => members?.family ?? []);
const REFRESH_MS = 10_000;

/** The agent's measurements on the run's node: of the run and of the node, or of each rank and GPU if there are several. */
export function HardwareCharts({ frame, team, run, live, ranks }: Props) {
  const [isByMember, setIsByMember] = useState(false);
  const members = useQuery({
    ...perRankSeriesQuery(team, run, frame.view.window, FAMILIES),
    enabled: isByMember,
    placeholderData: (before) => before,
    refetchInterval: live ? REFRESH_MS : false,
  });
  const byMember = isByMember ? members.data : undefined;
  return (
    <>
      {ranks > 1 && (
        <label className="mb-3 inline-flex items-center gap-2 text-small max-tablet:min-h-11">
          <input
            type="checkbox"
            checked={isByMember}
            onChange={(event) => {
              setIsByMember(event.target.checked);
            }}
          />
          {lastValue(frame.columns["mean_gpu_utilization"]) === undefined ? "each rank" : "each rank and GPU"}
        </label>
      )}
      {isByMember && members.error !== null && <ErrorNote error={members.error} />}
      <div className="grid grid-cols-4 gap-3 max-desk:grid-cols-2 max-tablet:grid-cols-1">
        {CHARTS.map(({ members: kind, ...chart }) => {
          if (!chart.series.some(({ name }) => lastValue(frame.columns[name]) !== undefined)) return null;
          if (byMember === undefined || kind === undefined) return <SeriesChart key={chart.title} {...frame} {...chart} />;
          return <MemberChart key={chart.title} {...chart} {...kind} frame={frame} columns={byMember} isPlaceholder={members.isPlaceholderData} />;
        })}
      </div>
    </>
  );
}
