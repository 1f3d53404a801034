import { useEffect, useMemo, useRef } from "react";
import type { ChartZoom } from "@/components/charts/chartOptions";
import { count } from "@/lib/format";
import type { AxisScale } from "@/lib/charts/series";
import { boundsOf, moveWindow, windowFromSelection, type StepWindow } from "@/lib/charts/stepWindow";

interface ZoomInput {
  axis: AxisScale;
  /** The run's latest step. */
  newest: number;
  window: StepWindow | null;
  /** More steps are expected. */
  isGrowing: boolean;
  /** Formats the window's bounds if they are not steps. */
  unit?: (value: number) => string;
  onWindow: (window: StepWindow | null) => void;
}

/** Shared zoom of charts: turns drags on the x axis and keys into windows of steps. */
export function useZoom(input: ZoomInput): ChartZoom {
  const { axis, newest, window, unit } = input;
  const latest = useRef(input);
  useEffect(() => {
    latest.current = input;
  });
  const bounds = boundsOf(window, newest);
  const range = useMemo<ChartZoom["range"]>(
    () => (window === null ? null : [axis.at(bounds.from), axis.at(bounds.to)]),
    [axis, window, bounds.from, bounds.to],
  );
  const label = windowLabel(window, unit);
  return useMemo(
    () => ({
      range,
      label,
      onSelect: (from, to) => {
        const { axis, newest, window, isGrowing, onWindow } = latest.current;
        const chosen = windowFromSelection(axis.stepAt(from), axis.stepAt(to), boundsOf(window, newest), newest, isGrowing);
        if (chosen !== null) onWindow(chosen);
      },
      onMove: (move) => {
        const { newest, window, isGrowing, onWindow } = latest.current;
        onWindow(moveWindow(window, move, newest, isGrowing));
      },
    }),
    [range, label],
  );
}

/** Changes only with the window, because screen readers announce it. */
function windowLabel(window: StepWindow | null, unit?: (value: number) => string): string {
  if (window === null) return "the full run";
  if (unit !== undefined && "from" in window) return `${unit(window.from)} to ${unit(window.to)}`;
  if ("last" in window) return `the last ${count(window.last)} steps, following the end`;
  return `steps ${count(window.from)} to ${count(window.to)}`;
}
