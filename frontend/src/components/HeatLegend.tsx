import { powerOfTwo } from "@/lib/format";
import { VIRIDIS_GRADIENT } from "@/lib/heatMap";

/** The colours of a heat map from the least to the greatest exponent. */
export function HeatLegend({ low, high }: { low: number; high: number }) {
  return (
    <span className="flex items-center gap-2">
      {powerOfTwo(low)}
      <span aria-hidden className="h-2.5 w-32" style={{ background: VIRIDIS_GRADIENT }} />
      {powerOfTwo(high)}
    </span>
  );
}
