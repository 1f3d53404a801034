import type { Browser, Page } from "@playwright/test";

/** Work of a page's main thread during interaction. Times are CPU milliseconds, except those named `wall`. */
export interface Use {
  /** Frames that the main thread produced. */
  frames: number;
  seconds: number;
  /** Script and layout per frame, 95th percentile. */
  frame_p95: number;
  frame_p95_wall: number;
  /** The longest task of any kind. */
  task: number;
  task_wall: number;
  /** Frames that reached the screen. */
  painted: number;
}

interface TraceEvent {
  name: string;
  ph: string;
  ts: number;
  dur?: number;
  tdur?: number;
  pid: number;
  tid: number;
  args?: { name?: string };
}

const TIMELINE = "devtools.timeline";
const CATEGORIES = [TIMELINE, `disabled-by-default-${TIMELINE}`, `disabled-by-default-${TIMELINE}.frame`, "__metadata"];

/** Events of script and layout; painting and compositing are neither. */
const SCRIPT_AND_LAYOUT = new Set([
  "EvaluateScript",
  "EventDispatch",
  "FireAnimationFrame",
  "FireIdleCallback",
  "FunctionCall",
  "Layout",
  "MajorGC",
  "MinorGC",
  "RunMicrotasks",
  "TimerFire",
  "UpdateLayoutTree",
  "XHRReadyStateChange",
]);

/** Traces the page during `work`. */
export async function traced(browser: Browser, page: Page, work: () => Promise<void>): Promise<Use> {
  await browser.startTracing(page, { categories: CATEGORIES });
  let buffer: Buffer;
  try {
    await work();
  } finally {
    buffer = await browser.stopTracing();
  }
  const { traceEvents } = JSON.parse(buffer.toString("utf8")) as { traceEvents: TraceEvent[] };
  return useOf(traceEvents);
}

function useOf(events: readonly TraceEvent[]): Use {
  const own = ofMainThread(events);
  const tasks = own.filter(({ name }) => name === "RunTask");
  const frames = framesOf(own);
  return {
    frames: frames.length,
    seconds: (Math.max(...tasks.map(endOf)) - Math.min(...tasks.map(({ ts }) => ts))) / 1e6,
    frame_p95: p95(frames.map(({ cpu }) => cpu)),
    frame_p95_wall: p95(frames.map(({ wall }) => wall)),
    task: Math.max(...tasks.map(({ tdur = 0 }) => tdur)) / 1_000,
    task_wall: Math.max(...tasks.map(({ dur = 0 }) => dur)) / 1_000,
    painted: events.filter(({ name }) => name === "DrawFrame").length,
  };
}

/** Events of the page's main thread; of several such threads, the busiest. */
function ofMainThread(events: readonly TraceEvent[]): TraceEvent[] {
  const threads = events.filter(({ name, args }) => name === "thread_name" && args?.name === "CrRendererMain");
  const each = threads.map(({ pid, tid }) => events.filter((one) => one.ph === "X" && one.pid === pid && one.tid === tid));
  const busiest = each.toSorted((a, b) => b.length - a.length)[0];
  if (busiest === undefined || busiest.length === 0) throw new Error("the trace has no main thread of a page");
  return busiest.toSorted((a, b) => a.ts - b.ts || (b.dur ?? 0) - (a.dur ?? 0));
}

/** Milliseconds of script and layout between consecutive frame commits. Every event in between counts. */
function framesOf(own: readonly TraceEvent[]): { cpu: number; wall: number }[] {
  const frames = [];
  let [cpu, wall, counted] = [0, 0, 0];
  for (const event of own) {
    if (event.name === "Commit") {
      frames.push({ cpu: cpu / 1_000, wall: wall / 1_000 });
      [cpu, wall] = [0, 0];
    } else if (SCRIPT_AND_LAYOUT.has(event.name) && event.ts >= counted) {
      // Nested events are already included in the outer one.
      [cpu, wall, counted] = [cpu + (event.tdur ?? 0), wall + (event.dur ?? 0), endOf(event)];
    }
  }
  return frames;
}

function endOf({ ts, dur = 0 }: TraceEvent): number {
  return ts + dur;
}

function p95(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.ceil(0.95 * values.length) - 1] ?? NaN;
}
