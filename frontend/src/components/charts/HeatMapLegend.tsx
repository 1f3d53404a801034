import { powerOfTwo } from "@/lib/format";
import { VIRIDIS_GRADIENT, type HeatMap } from "@/lib/charts/heatMap";

interface Props {
  map: Pick<HeatMap, "low" | "high" | "scale">;
  text: (value: number) => string;
}

/** The colour scale of a heat map. */
export function HeatMapLegend({ map: { low, high, scale }, text }: Props) {
  const formatEnd = scale === "log2" ? powerOfTwo : text;
  return (
    <span className="flex items-center gap-2">
      {formatEnd(low)}
      <span aria-hidden className="h-2.5 w-32" style={{ background: VIRIDIS_GRADIENT }} />
      {formatEnd(high)}
    </span>
  );
}
