import { useEffect, useMemo, useRef } from "react";
import type { ChartZoom } from "@/components/chartOptions";
import { count } from "@/lib/format";
import type { Position } from "@/lib/series";
import { boundsOf, moved, selected, type StepWindow } from "@/lib/stepWindow";

interface Wish {
  axis: Position;
  /** The run's last step so far. */
  newest: number;
  window: StepWindow | null;
  /** More steps are to come. */
  grows: boolean;
  /** What the window counts, where it is not steps. */
  unit?: (value: number) => string;
  onWindow: (window: StepWindow | null) => void;
}

/** What charts need to be zoomed together: drags in their x axis and keys become windows of steps. */
export function useZoom(wish: Wish): ChartZoom {
  const { axis, newest, window, unit } = wish;
  const latest = useRef(wish);
  useEffect(() => {
    latest.current = wish;
  });
  const bounds = boundsOf(window, newest);
  const range = useMemo<ChartZoom["range"]>(
    () => (window === null ? null : [axis.at(bounds.from), axis.at(bounds.to)]),
    [axis, window, bounds.from, bounds.to],
  );
  const words = wordsOf(window, unit);
  return useMemo(
    () => ({
      range,
      words,
      onSelect: (from, to) => {
        const { axis, newest, window, grows, onWindow } = latest.current;
        const chosen = selected(axis.stepAt(from), axis.stepAt(to), boundsOf(window, newest), newest, grows);
        if (chosen !== null) onWindow(chosen);
      },
      onMove: (move) => {
        const { newest, window, grows, onWindow } = latest.current;
        onWindow(moved(window, move, newest, grows));
      },
    }),
    [range, words],
  );
}

/** They change only when the window does: they are read out. */
function wordsOf(window: StepWindow | null, unit?: (value: number) => string): string {
  if (window === null) return "the whole run";
  if (unit !== undefined && "from" in window) return `${unit(window.from)} to ${unit(window.to)}`;
  if ("last" in window) return `the last ${count(window.last)} steps, following the end`;
  return `steps ${count(window.from)} to ${count(window.to)}`;
}
