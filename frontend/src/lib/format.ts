/** Formats numbers, durations, times and sentences for reading, numbers with predictable widths. */

const integerFormat = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1,200 */
export function count(value: number): string {
  return integerFormat.format(value);
}

/** 441,000 from 441,037: four digits of a rate are enough. */
export function rate(value: number): string {
  if (value < 10) return value.toFixed(1);
  if (value < 1_000) return value.toFixed(0);
  const unit = 10 ** (Math.floor(Math.log10(value)) - 3);
  return count(Math.round(value / unit) * unit);
}

/** 3.124, 437.1, 0.00312 where three decimals would not be enough, and 1.37e11 where the digits would not fit. */
export function decimal(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6) return scientific(value, 2);
  if (size >= 1_000) return count(value);
  if (size >= 100) return value.toFixed(1);
  if (size >= 0.1) return value.toFixed(3);
  return size >= 1e-3 ? value.toPrecision(3) : scientific(value, 2);
}

/** 0.003 · 9e-4 · 1.23e-4: a setting that the run changes, with three digits; otherwise as `exactNumber`. */
export function settingNumber(value: number): string {
  return exactNumber(Number(value.toPrecision(3)));
}

/** 4,096 · 0.003 · 3e-4 · 1e-8: every digit of a setting, in the shortest form. */
export function exactNumber(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return value.toExponential().replace("e+", "e");
  return value.toLocaleString("en-US", { maximumFractionDigits: 20 });
}

/** 38.2, 40.0, 0, 100; the caller adds the percent sign. */
export function percent(fraction: number): string {
  const text = (fraction * 100).toFixed(1);
  return fraction === 0 || text === "100.0" ? text.replace(".0", "") : text;
}

/** 0 %, 0.00104 %, 1.3 %, 100 %: for shares over several orders of magnitude. */
export function share(fraction: number): string {
  if (fraction === 0) return "0 %";
  const value = fraction * 100;
  return `${value >= 100 ? "100" : value >= 10 ? value.toFixed(0) : value >= 0.0001 ? Number(value.toPrecision(2)) : scientific(value, 0)} %`;
}

const SUPERSCRIPTS: Record<string, string> = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** 2⁻⁹ */
export function powerOfTwo(exponent: number): string {
  return `2${String(exponent).replaceAll(/[-\d]/g, (character) => SUPERSCRIPTS[character] ?? character)}`;
}

/** 4.1e-7: how very small and very large numbers are written everywhere. */
export function scientific(value: number, decimals = 1): string {
  return value.toExponential(decimals).replace(/\.?0*e\+?/, "e");
}

const PETAFLOP_DAY = 86_400e15;
/** Fewest petaFLOP/s-days that are shown as such; below it, FLOP with a prefix are easier to read. */
const MIN_DAYS = 0.01;
const PREFIXES = ["", "k", "M", "G", "T", "P", "E"] as const;

/** `["0.5", "petaFLOP/s-days"]`, `["370", "TFLOP"]`: a number of FLOPs and its unit, which suits `total`. */
export function flopParts(flops: number, total: number = flops): [string, string] {
  if (total >= MIN_DAYS * PETAFLOP_DAY) return [significant(flops / PETAFLOP_DAY), "petaFLOP/s-days"];
  const power = Math.min(PREFIXES.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(total, 1)) / 3)));
  return [significant(flops / 1_000 ** power), `${PREFIXES[power] ?? ""}FLOP`];
}

/** 12,300 · 1.25 · 0.0312 · 4.1e-7 */
function significant(value: number): string {
  if (value === 0) return "0";
  if (value >= 100) return count(value);
  return value >= 0.001 ? String(Number(value.toPrecision(3))) : scientific(value);
}

/** Smaller numbers are about as short in full, and exact. */
const MIN_SHORT = 10_000;

/** 2,550 · 124 M · 1.3 B: the size of a model. */
export function short(value: number): string {
  if (value < MIN_SHORT) return count(value);
  for (const [size, unit] of [
    [1e12, "T"],
    [1e9, "B"],
    [1e6, "M"],
  ] as const) {
    if (value >= size) return `${trimZeros(value / size)} ${unit}`;
  }
  return `${trimZeros(value / 1e3)} k`;
}

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** A number of bytes and its unit separately, because units are set smaller. */
export function bytesParts(value: number): [string, string] {
  let index = 0;
  let size = value;
  while (size >= 1_000 && index < BYTE_UNITS.length - 1) {
    size /= 1_024;
    index += 1;
  }
  return [index === 0 ? count(size) : trimZeros(size), BYTE_UNITS[index] ?? "B"];
}

export function bytes(value: number): string {
  return bytesParts(value).join(" ");
}

/** 8 s · 1 min 40 s · 18 min · 1 h 15 min · 2 d 3 h */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds) || seconds < 0) return "–";
  const total = Math.round(seconds);
  if (total < 60) return `${total} s`;
  const minutes = Math.floor(total / 60);
  if (minutes < 5) return joinUnits(minutes, "min", total % 60, "s");
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return joinUnits(hours, "h", minutes % 60, "min");
  return joinUnits(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** 0.04, 3.2, 120: hours with a useful number of digits. */
export function hoursText(hours: number): string {
  if (hours === 0) return "0";
  if (hours < 0.01) return "< 0.01";
  return hours < 10 ? String(Number(hours.toPrecision(2))) : Math.round(hours).toLocaleString("en-US");
}

/** 3 ms · 351 ms · 1.19 s: the duration of a step or a part of it. */
export function shortTime(seconds: number): string {
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 0.01) return `${(seconds * 1e3).toFixed(1)} ms`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(0)} ms`;
  return seconds < 60 ? `${seconds.toPrecision(3)} s` : duration(seconds);
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const weekdayFormat = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const fullFormat = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/** 13:46:02, in the viewer's time zone. */
export function clockTime(time: string | number): string {
  return clockFormat.format(new Date(time));
}

/** 13:46 today, 18 Nov 13:46 before. */
export function moment(time: string, now: number = Date.now()): string {
  const date = new Date(time);
  const hours = clockFormat.format(date).slice(0, 5);
  return date.toDateString() === new Date(now).toDateString() ? hours : `${dayFormat.format(date)} ${hours}`;
}

/** Today; Wednesday, 18 November 2026: the day of a time in the viewer's time zone. */
export function dayText(time: string, now: number = Date.now()): string {
  const date = new Date(time);
  return date.toDateString() === new Date(now).toDateString() ? "Today" : weekdayFormat.format(date);
}

/** A time with date, zone and offset, for tooltips. */
export function fullTime(time: string): string {
  return fullFormat.format(new Date(time));
}

export function secondsBetween(from: string, to: string | number): number {
  return Math.max(0, (new Date(to).getTime() - new Date(from).getTime()) / 1_000);
}

/** `3 shards`, `1 shard` */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** `Saved step 50` from `saved step 50`. */
export function capitalize(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function joinUnits(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

function trimZeros(value: number): string {
  if (value >= 100) return count(value);
  return value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}
