import type { SeriesInfo } from "@/api/types";
import type { AxisText, ChartScale } from "@/components/charts/chartOptions";
import { bytesTick, celsiusText, coresText, percentText, percentTick, shortTick, tick, wattsText } from "@/lib/charts/valueTexts";
import { bytes, count, decimal, duration, rate, settingNumber, share, shortTime } from "@/lib/format";

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
