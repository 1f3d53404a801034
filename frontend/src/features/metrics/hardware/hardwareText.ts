import { celsiusText, coresText, percentText, wattsText } from "@/lib/charts/valueTexts";
import { lastValue, type Columns } from "@/lib/charts/series";
import { bytes } from "@/lib/format";

/** Whether the run's node reports its use; older agents do not. */
export function hasHardware(columns: Columns): boolean {
  return lastValue(columns["cpu_utilization"]) !== undefined;
}

const PARTS: [name: string, text: (value: number) => string][] = [
  ["cpu_utilization", (value) => `node CPU ${percentText(value)}`],
  ["run_cpu_cores", (value) => `run ${coresText(value)}`],
  ["node_memory_bytes", (value) => `node memory ${bytes(value)}`],
  ["mean_gpu_utilization", (value) => `GPU ${percentText(value)}`],
  ["total_gpu_power_watts", wattsText],
  ["max_gpu_temperature_celsius", celsiusText],
];

/** `node CPU 93.1 %, run 1.73 cores, node memory 12.4 GiB` */
export function hardwareText(columns: Columns): string {
  return PARTS.flatMap(([name, text]) => {
    const value = lastValue(columns[name]);
    return value === undefined ? [] : text(value);
  }).join(", ");
}
