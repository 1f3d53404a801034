import { powerOfTwo } from "@/lib/format";
import { VIRIDIS_GRADIENT, type HeatMap } from "@/lib/heatMap";

interface Props {
  map: Pick<HeatMap, "low" | "high" | "scale">;
  text: (value: number) => string;
}

/** The colours of a heat map from the least to the greatest. */
export function HeatLegend({ map: { low, high, scale }, text }: Props) {
  const told = scale === "log2" ? powerOfTwo : text;
  return (
    <span className="flex items-center gap-2">
      {told(low)}
      <span aria-hidden className="h-2.5 w-32" style={{ background: VIRIDIS_GRADIENT }} />
      {told(high)}
    </span>
  );
}
