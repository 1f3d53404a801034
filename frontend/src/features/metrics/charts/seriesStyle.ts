import type { SeriesInfo } from "@/api/types";
import type { AxisText, ChartScale } from "@/components/charts/chartOptions";
import { bytes, bytesParts, count, decimal, duration, percent, rate, settingNumber, share, short, shortTime } from "@/lib/format";

/** How a series' values are drawn and formatted everywhere. */
export interface SeriesStyle {
  title: string;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: AxisText;
}

type Format = Omit<SeriesStyle, "title">;

const NUMBER: Format = { scale: "fit", text: decimal, axisText: tick };
const PERCENT: Format = { scale: "zero", text: percentText, axisText: percentTick };
const SHARE: Format = { scale: "zero", text: share, axisText: share };

const FORMAT_BY_UNIT: Record<string, Format> = {
  "": { ...NUMBER, scale: "zero" },
  "nats/token": NUMBER,
  bytes: { scale: "bytes", text: bytes, axisText: bytesTick },
  s: { scale: "zero", text: shortTime, axisText: shortTime },
  steps: { scale: "zero", text: count, axisText: tick },
  tokens: { scale: "zero", text: count, axisText: shortTick },
  cores: { scale: "zero", text: coresText, axisText: tick },
  W: { scale: "zero", text: wattsText, axisText: tick },
  "°C": { scale: "zero", text: celsiusText, axisText: tick },
  "tokens/s": { scale: "zero", text: rate, axisText: shortTick },
};

/** Series that their unit alone does not describe. */
const FORMAT_BY_NAME: Record<string, Format> = {
  learning_rate: { scale: "zero", text: settingNumber, axisText: settingNumber },
  eta_seconds: { scale: "zero", text: duration, axisText: duration },
};

/** The learning rate has no noise, and validation measures rarely: smoothing would only delay them. */
const NEVER_SMOOTHED: ReadonlySet<string> = new Set(["learning_rate", "validation_loss"]);

/** How strongly to smooth a series, if the charts are smoothed by `weight`. */
export function smoothingOf(name: string, weight: number): number {
  return NEVER_SMOOTHED.has(name) ? 0 : weight;
}

/** The style of a registered series. Fractions are percentages, except FP8 ones, which span orders of magnitude. */
export function styleOf({ name, title, unit, group }: SeriesInfo): SeriesStyle {
  if (unit === "fraction") return group === "fp8" ? { ...SHARE, title } : { ...PERCENT, title: `${title}, %` };
  return { ...(FORMAT_BY_NAME[name] ?? FORMAT_BY_UNIT[unit] ?? NUMBER), title };
}

/** The style of a series that is not registered, which a modified trainer may write. */
export function defaultStyle(name: string): SeriesStyle {
  return { ...NUMBER, title: name.replaceAll("_", " ") };
}

export function percentText(value: number): string {
  return `${percent(value)} %`;
}

export function percentTick(value: number, step = 0): string {
  return plainNumber(value * 100, Math.max(1, decimalsOf(step * 100)));
}

/** `37 GiB`, `9.3 GiB`: short enough for an axis. */
export function bytesTick(value: number): string {
  const [number, unit] = bytesParts(value);
  const size = Number(number.replaceAll(",", ""));
  return `${size >= 10 ? Math.round(size) : Number(size.toFixed(1))} ${unit}`;
}

/** `1.73 cores` */
export function coresText(value: number): string {
  return `${Number(value.toPrecision(3))} ${value === 1 ? "core" : "cores"}`;
}

/** `412 W` */
export function wattsText(value: number): string {
  return `${count(value)} W`;
}

/** `61 °C` */
export function celsiusText(value: number): string {
  return `${count(value)} °C`;
}

export function shortTick(value: number): string {
  return short(value).replace(" ", "");
}

/** At least three digits, and as many as distinguish ticks that are `step` apart. */
export function tick(value: number, step = 0): string {
  if (value >= 10_000) return shortTick(value);
  if (Math.abs(value) >= 1_000) return count(value);
  if (Math.abs(value) < 1e-6) return String(Number(value.toPrecision(3)));
  return plainNumber(value, Math.max(decimalsOf(step), decimalsOf(Number(value.toPrecision(3)))));
}

/** Without trailing zeros. */
function plainNumber(value: number, decimals: number): string {
  return String(Number(value.toFixed(decimals)));
}

const MAX_DECIMALS = 12;

/** 0 of 20, 1 of 0.5, 4 of 0.0025 */
function decimalsOf(value: number): number {
  const digits = Number(value.toPrecision(3)).toFixed(MAX_DECIMALS).replace(/0+$/, "");
  return digits.length - digits.indexOf(".") - 1;
}
