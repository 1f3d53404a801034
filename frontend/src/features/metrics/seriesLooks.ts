import type { ChartScale } from "@/components/chartOptions";
import { bytes, count, decimal, duration, percent, rate, share, short, shortTime } from "@/lib/format";

/** How the values of a series are drawn and said, wherever it is shown. */
export interface SeriesLook {
  title: string;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: (value: number) => string;
}

const plain: Omit<SeriesLook, "title"> = { scale: "fit", text: decimal, axisText: tick };
const fraction: Omit<SeriesLook, "title"> = { scale: "zero", text: percentText, axisText: wholePercent };
const seconds: Omit<SeriesLook, "title"> = { scale: "zero", text: shortTime, axisText: shortTime };
const parts: Omit<SeriesLook, "title"> = { scale: "zero", text: share, axisText: share };

const LOOKS: Record<string, SeriesLook> = {
  loss: { ...plain, title: "loss" },
  validation_loss: { ...plain, title: "validation loss" },
  grad_norm: { ...plain, title: "grad norm", scale: "zero" },
  learning_rate: { title: "learning rate", scale: "zero", text: rateText, axisText: rateText },
  tokens: { title: "tokens", scale: "zero", text: count, axisText: shortTick },
  tokens_per_second: { title: "tokens/s", scale: "zero", text: rate, axisText: shortTick },
  mfu: { ...fraction, title: "MFU, %" },
  hfu: { ...fraction, title: "HFU, %" },
  bf16_mfu: { ...fraction, title: "MFU of the BF16 peak, %" },
  memory_bytes: { title: "memory of the fullest rank", scale: "zero", text: bytes, axisText: bytes },
  eta_seconds: { title: "time left", scale: "zero", text: duration, axisText: duration },
  seconds: { ...seconds, title: "step time" },
  data_seconds: { ...seconds, title: "data, time a step" },
  forward_seconds: { ...seconds, title: "forward, time a step" },
  backward_seconds: { ...seconds, title: "backward, time a step" },
  collectives_seconds: { ...seconds, title: "collectives, time a step" },
  optimizer_seconds: { ...seconds, title: "optimizer, time a step" },
  skipped_steps: { title: "skipped steps", scale: "zero", text: count, axisText: tick },
  fp8_saturated: { ...parts, title: "FP8 clamped" },
  fp8_flushed: { ...parts, title: "FP8 flushed" },
  fp8_lost_updates: { ...parts, title: "FP8 lost updates" },
  fp8_smallest_headroom: { ...plain, title: "FP8 smallest headroom", scale: "zero" },
};

/** A series that this page has no words for is called by its name. */
export function seriesLook(name: string): SeriesLook {
  return LOOKS[name] ?? { ...plain, title: name.replaceAll("_", " ") };
}

export function percentText(value: number): string {
  return `${percent(value)} %`;
}

export function wholePercent(value: number): string {
  const hundred = value * 100;
  return Number.isInteger(Math.round(hundred * 10) / 10) ? hundred.toFixed(0) : hundred.toFixed(1);
}

export function shortTick(value: number): string {
  return short(value).replace(" ", "");
}

export function tick(value: number): string {
  return Math.abs(value) >= 1_000 ? count(value) : String(Number(value.toPrecision(3)));
}

function rateText(value: number): string {
  return value === 0 ? "0" : value >= 0.01 ? String(Number(value.toPrecision(3))) : value.toExponential(1).replace(".0e", "e");
}
