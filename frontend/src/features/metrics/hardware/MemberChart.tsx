import { useMemo } from "react";
import { Chart } from "@/components/charts/Chart";
import type { AxisText, ChartScale } from "@/components/charts/chartOptions";
import { axisTexts } from "@/features/metrics/charts/axisTexts";
import type { ChartFrame } from "@/features/metrics/charts/SeriesChart";
import { join, smooth, type Columns } from "@/lib/charts/series";

interface Props {
  title: string;
  /** The series drawn are its members, `<family>/<number>`. */
  family: string;
  /** The kind of member, which precedes its number. */
  label: string;
  columns: Columns;
  frame: ChartFrame;
  isPlaceholder: boolean;
  scale: ChartScale;
  text: (value: number) => string;
  axisText: AxisText;
}

const COLORS = 8;

/** One line for each rank or GPU of a run. */
export function MemberChart({ title, family, label, columns, frame, isPlaceholder, scale, text, axisText }: Props) {
  const { position, markers, zoom, view } = frame;
  const { x, lines } = useMemo(() => {
    const members = Object.keys(columns)
      .filter((name) => name.startsWith(`${family}/`))
      .map((name) => ({ name, number: Number(name.slice(family.length + 1)) }))
      .sort((a, b) => a.number - b.number);
    const joined = join(members.map(({ name }) => columns[name]));
    return {
      x: joined.steps.map(position),
      lines: members.map(({ number }, index) => {
        const values = joined.values[index] ?? [];
        return {
          label: `${label} ${number}`,
          color: (index % COLORS) + 1,
          dash: index >= COLORS && members.length <= 2 * COLORS,
          values: smooth(values, view.smooth),
          raw: values,
          hideRaw: true,
        };
      }),
    };
  }, [columns, family, label, position, view.smooth]);
  return (
    <Chart
      title={title}
      group="run"
      x={x}
      {...axisTexts(view.x, zoom)}
      lines={lines}
      yText={text}
      axisText={axisText}
      scale={scale}
      markers={markers}
      zoom={zoom}
      isPlaceholder={isPlaceholder}
      legend={lines.length <= COLORS}
    />
  );
}
