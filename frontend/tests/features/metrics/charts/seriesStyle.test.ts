import { expect, it } from "vitest";
import type { SeriesInfo } from "@/api/types";
import { defaultStyle, smoothingOf, styleOf } from "@/features/metrics/charts/seriesStyle";
import { bytesTick, percentTick, shortTick, tick } from "@/lib/charts/valueTexts";

function anInfo(change: Partial<SeriesInfo>): SeriesInfo {
  return { name: "loss", title: "loss", unit: "nats/token", group: "learning", description: "", fp8_only: false, derived: false, ...change };
}

it.each([
  [anInfo({}), 3.1239, "loss", "3.124"],
  [anInfo({ name: "mfu", title: "MFU", unit: "fraction", group: "speed" }), 0.382, "MFU, %", "38.2 %"],
  [anInfo({ name: "fp8_underflow", title: "FP8 underflow", unit: "fraction", group: "fp8" }), 2e-4, "FP8 underflow", "0.02 %"],
  [anInfo({ name: "seconds", title: "step time", unit: "s", group: "time" }), 0.351, "step time", "351 ms"],
  [anInfo({ name: "eta_seconds", title: "time left", unit: "s", group: "time" }), 4_500, "time left", "1 h 15 min"],
  [anInfo({ name: "learning_rate", title: "learning rate", unit: "" }), 0.003, "learning rate", "0.003"],
  [anInfo({ name: "learning_rate", title: "learning rate", unit: "" }), 9.1234e-4, "learning rate", "9.12e-4"],
  [anInfo({ name: "run_cpu_cores", title: "run CPU", unit: "cores", group: "hardware" }), 1.7312, "run CPU", "1.73 cores"],
  [anInfo({ name: "total_gpu_power_watts", title: "GPU power", unit: "W", group: "hardware" }), 1_412.4, "GPU power", "1,412 W"],
  [anInfo({ name: "max_gpu_temperature_celsius", title: "temperature", unit: "°C", group: "hardware" }), 60.6, "temperature", "61 °C"],
])("formats a series by its unit (%#)", (info, value, title, text) => {
  const style = styleOf(info);
  expect([style.title, style.text(value)]).toEqual([title, text]);
});

it("never smooths the learning rate and validation", () => {
  expect(["loss", "grad_norm", "learning_rate", "validation_loss"].map((name) => smoothingOf(name, 0.6))).toEqual([0.6, 0.6, 0, 0]);
});

it("labels an axis of bytes with few digits", () => {
  expect([0, 1_000, 9.31 * 2 ** 30, 27.9 * 2 ** 30, 512 * 2 ** 20].map((value) => bytesTick(value))).toEqual(["0 B", "1 KiB", "9.3 GiB", "28 GiB", "512 MiB"]);
});

it("labels an unregistered series with its name", () => {
  expect(defaultStyle("my_metric").title).toBe("my metric");
});

it.each([
  [tick, 0.005, [8.315, 8.32, 8.325], ["8.315", "8.32", "8.325"]],
  [tick, 0.0025, [8.3175, 8.32, 8.3225], ["8.3175", "8.32", "8.3225"]],
  [tick, 2, [4, 6, 8], ["4", "6", "8"]],
  [tick, 0.1, [0.1 + 0.2, 0.4], ["0.3", "0.4"]],
  [shortTick, 5_000, [5_000, 10_000, 15_000], ["5,000", "10k", "15k"]],
  [tick, 5_000, [5_000, 10_000], ["5,000", "10k"]],
  [tick, 1e-8, [1e-8, 2e-8], ["1e-8", "2e-8"]],
  [percentTick, 0.1, [0, 0.1, 0.2], ["0", "10", "20"]],
  [percentTick, 0.0002, [0, 0.0002, 0.0004], ["0", "0.02", "0.04"]],
])("labels neighboring ticks differently (%#)", (axisText, step, ticks, texts) => {
  expect(ticks.map((value) => axisText(value, step))).toEqual(texts);
});
