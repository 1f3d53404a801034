import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Fp8Recipe } from "@/api/types";
import { Chart } from "@/components/Chart";
import type { ChartMark, ChartZoom } from "@/components/chartOptions";
import { ErrorState } from "@/components/ErrorState";
import { Select } from "@/components/Select";
import { Skeleton } from "@/components/Skeleton";
import { tensorsQuery, type TensorPlace } from "@/features/fp8/queries";
import { count, decimal, powerOfTwo } from "@/lib/format";
import { heatHeight } from "@/lib/heatMap";
import { kindWords, partWords, type TensorChoice, type TensorKind } from "@/lib/tensors";

interface Props {
  scaling: Fp8Recipe["scaling"];
  tensors: TensorPlace;
  marks: readonly ChartMark[];
  zoom: ChartZoom;
  choice: TensorChoice;
  pattern: string;
  layers: readonly (number | null)[];
  onLayer: (layer: number) => void;
}

/** The map beside it has its steps below it; a chart's height has them in it. */
const AXIS = 20;

/** How the scale of one tensor went, in powers of two. */
export function ScaleChart({ scaling, tensors, marks, zoom, choice, pattern, layers, onLayer }: Props) {
  const scales = useQuery(tensorsQuery(tensors, pattern));
  const column = Object.values(scales.data ?? {})[0];
  const lines = useMemo(() => [{ label: "scale", color: 1, values: (column?.values ?? []).map(exponentOf) }], [column]);
  if (scales.isError) return <ErrorState error={scales.error} onRetry={() => void scales.refetch()} />;
  if (scales.data === undefined) return <Skeleton rows={1} height={280} />;
  return (
    <div className="grid min-w-0" aria-busy={scales.isPlaceholderData}>
      <Chart
        title={`scale of ${partWords(choice.part)} ${kindWords(choice.kind)}`}
        group="fp8"
        x={column?.steps ?? []}
        xName="step"
        xText={count}
        lines={lines}
        yText={scaleText}
        axisText={scaleTick}
        scale="fit"
        marks={marks}
        zoom={zoom}
        height={heatHeight(layers.length) + AXIS}
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
          {meaning(choice.kind, scaling)} Normal are single steps up and down. Where it leaps at every measurement, the tensor
          has outliers: {scaling === "tensor" && "use row scaling, or "}clip at a smaller norm.
        </p>
      </Chart>
    </div>
  );
}

/** Products may scale parts of a tensor; a gradient is always kept with one scale. */
function meaning(kind: TensorKind, scaling: Fp8Recipe["scaling"]): string {
  if (kind === "gradient") {
    return "The number that multiplies the stored FP8 values to get real ones: a power of two, times the clipping factor.";
  }
  if (scaling === "tensor") return "The number that multiplies the stored FP8 values to get real ones, a power of two.";
  return `The scale of the whole tensor’s amax; with ${scaling} scaling each ${scaling} has one of its own.`;
}

function exponentOf(scale: number): number | null {
  return scale > 0 ? Math.log2(scale) : null;
}

function scaleText(exponent: number): string {
  return Number.isInteger(exponent) ? `${powerOfTwo(exponent)} (${decimal(2 ** exponent)})` : decimal(2 ** exponent);
}

function scaleTick(exponent: number): string {
  return Number.isInteger(exponent) ? powerOfTwo(exponent) : "";
}
