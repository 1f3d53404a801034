import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Fp8Recipe } from "@/api/types";
import type { ChartMarker, ChartZoom } from "@/components/charts/chartOptions";
import { EmptyState } from "@/components/EmptyState";
import { ErrorState } from "@/components/ErrorState";
import { HeatMap } from "@/components/charts/HeatMap";
import { Skeleton } from "@/components/Skeleton";
import { tensorSeriesQuery, tensorsQuery, type TensorSource } from "@/features/fp8/queries";
import { ScaleChart } from "@/features/fp8/ScaleChart";
import { TensorControls } from "@/features/fp8/TensorControls";
import type { TensorSearch } from "@/features/fp8/tensorSearch";
import { decimal } from "@/lib/format";
import { heatMapOf } from "@/lib/charts/heatMap";
import { chooseTensor, layersOf, partsOf, seriesPattern, tensorOf, type TensorChoice } from "@/features/fp8/tensors";

interface Props {
  scaling: Fp8Recipe["scaling"];
  tensors: TensorSource;
  markers: readonly ChartMarker[];
  zoom: ChartZoom;
  tensorSearch: TensorSearch;
  onChoose: (choice: TensorChoice) => void;
}

const MAX_COLUMNS = 96;

/** Per-tensor charts: the amax of a part in every layer, and the scale of one tensor. */
export function TensorPanels({ scaling, tensors: source, markers, zoom, tensorSearch, onChoose }: Props) {
  const names = useQuery(tensorSeriesQuery(source));
  const known = names.data;
  const tensors = useMemo(() => (known ?? []).map(tensorOf).filter((tensor) => tensor !== null), [known]);
  const choice = chooseTensor(tensors, tensorSearch);
  const amaxPattern = choice === null ? "" : seriesPattern("amax", known ?? [], choice, true);
  const amaxes = useQuery({ ...tensorsQuery(source, amaxPattern), enabled: choice !== null });
  const map = useMemo(() => {
    const rows = Object.entries(amaxes.data ?? {}).map(([name, column]) => ({ layer: tensorOf(name)?.layer ?? null, column }));
    const sorted = rows.sort((a, b) => (a.layer ?? -1) - (b.layer ?? -1));
    return heatMapOf(sorted.map(({ layer, column }) => ({ label: layer === null ? "–" : String(layer), column })), MAX_COLUMNS);
  }, [amaxes.data]);

  const failed = [names, amaxes].find(({ isError }) => isError);
  if (failed !== undefined) return <ErrorState error={failed.error} onRetry={() => void failed.refetch()} />;
  if (choice === null && names.isSuccess && !source.live) return <EmptyState title="No tensor was measured individually." />;
  if (choice === null) return <Skeleton rows={1} height={280} />;
  const { kind, part } = choice;
  const layers = layersOf(tensors, kind, part);
  return (
    <div className="grid grid-cols-[3fr_2fr] gap-3 max-desk:grid-cols-1">
      {amaxes.data === undefined ? (
        <Skeleton rows={1} height={280} />
      ) : (
        <div className="grid min-w-0" aria-busy={amaxes.isPlaceholderData}>
          <HeatMap
            title={layers.length > 1 ? "amax by layer" : "amax"}
            rowName="layer"
            map={map}
            text={decimal}
            selectedRow={Math.max(0, layers.indexOf(choice.layer))}
            onSelectRow={(row) => {
              onChoose({ kind, part, layer: layers[row] ?? null });
            }}
            controls={
              <TensorControls
                kind={kind}
                part={part}
                parts={partsOf(tensors, kind)}
                onChange={(next) => {
                  const chosen = chooseTensor(tensors, { ...choice, ...next });
                  if (chosen !== null) onChoose(chosen);
                }}
              />
            }
          >
            <p className="mt-2 border-t pt-2 text-small text-soft">
              The largest absolute value in each layer's tensor, which determines its scale. Bands that change slowly are
              normal. If a layer brightens step by step, it is about to overflow: lower the learning rate, or keep that
              layer's matmuls in bfloat16 (BF16 first layers, BF16 last layers).
            </p>
          </HeatMap>
        </div>
      )}
      <ScaleChart
        scaling={scaling}
        tensors={source}
        markers={markers}
        zoom={zoom}
        choice={choice}
        pattern={seriesPattern("scale", known ?? [], choice, false)}
        layers={layers}
        onLayer={(layer) => {
          onChoose({ kind, part, layer });
        }}
      />
    </div>
  );
}
