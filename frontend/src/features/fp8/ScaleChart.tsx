import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Fp8Recipe } from "@/api/types";
import { Chart } from "@/components/charts/Chart";
import type { ChartMarker, ChartZoom } from "@/components/charts/chartOptions";
import { ErrorState } from "@/components/ErrorState";
import { Select } from "@/components/Select";
import { Skeleton } from "@/components/Skeleton";
import { exponentText, exponentTick } from "@/features/fp8/exponentText";
import { tensorsQuery, type TensorSource } from "@/features/fp8/queries";
import { count } from "@/lib/format";
import { heatHeight } from "@/lib/charts/heatMap";
import { kindLabel, partLabel, type TensorChoice, type TensorKind } from "@/features/fp8/tensors";

interface Props {
  scaling: Fp8Recipe["scaling"];
  tensors: TensorSource;
  markers: readonly ChartMarker[];
  zoom: ChartZoom;
  choice: TensorChoice;
  pattern: string;
  layers: readonly (number | null)[];
  onLayer: (layer: number) => void;
}

/** The heat map has its x axis below it, while a chart's height includes the axis. */
const AXIS_PX = 20;

/** The scale of one tensor over time, in powers of two. */
export function ScaleChart({ scaling, tensors, markers, zoom, choice, pattern, layers, onLayer }: Props) {
  const scales = useQuery(tensorsQuery(tensors, pattern));
  const column = Object.values(scales.data ?? {})[0];
  const lines = useMemo(() => [{ label: "scale", color: 1, values: (column?.values ?? []).map(exponentOf) }], [column]);
  if (scales.isError) return <ErrorState error={scales.error} onRetry={() => void scales.refetch()} />;
  if (scales.data === undefined) return <Skeleton rows={1} height={280} />;
  return (
    <div className="grid min-w-0" aria-busy={scales.isPlaceholderData}>
      <Chart
        title={`scale of ${partLabel(choice.part)} ${kindLabel(choice.kind)}`}
        group="fp8"
        x={column?.steps ?? []}
        xName="step"
        xText={count}
        lines={lines}
        yText={exponentText}
        axisText={exponentTick}
        scale="fit"
        markers={markers}
        zoom={zoom}
        height={heatHeight(layers.length) + AXIS_PX}
        controls={
          choice.layer !== null && (
            <Select
              aria-label="Layer"
              value={choice.layer}
              onChange={(event) => {
                onLayer(Number(event.target.value));
              }}
            >
              {layers.map((layer) => (
                <option key={layer} value={layer ?? ""}>
                  layer {layer}
                </option>
              ))}
            </Select>
          )
        }
      >
        <p className="mt-2 border-t pt-2 text-small text-soft">
          {scaleDescription(choice.kind, scaling)} Single steps up and down are normal. If it jumps at every measurement, the tensor
          has outliers: {scaling === "tensor" && "use row scaling, or "}clip at a smaller norm.
        </p>
      </Chart>
    </div>
  );
}

/** Matmuls may use several scales per tensor; a stored gradient always has one. */
function scaleDescription(kind: TensorKind, scaling: Fp8Recipe["scaling"]): string {
  if (kind === "gradient") {
    return "The number that multiplies the stored FP8 values to get real ones: a power of two, times the clipping factor.";
  }
  if (scaling === "tensor") return "The number that multiplies the stored FP8 values to get real ones, a power of two.";
  return `The scale of the entire tensor's amax; with ${scaling} scaling, each ${scaling} has its own.`;
}

function exponentOf(scale: number): number | null {
  return scale > 0 ? Math.log2(scale) : null;
}
