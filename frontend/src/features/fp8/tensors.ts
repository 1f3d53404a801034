/** The tensors that an FP8 run measures individually: `layers.3.attention.query.weight:input`. */

export const TENSOR_KINDS = ["weight", "gradient", "input", "output_gradient"] as const;

export type TensorKind = (typeof TENSOR_KINDS)[number];

export interface Tensor {
  kind: TensorKind;
  /** A weight within a layer, such as `attention.query`; outside the layers, the weight's name. */
  part: string;
  /** Layer number; null outside the layers. */
  layer: number | null;
}

const SERIES_PATTERN = /^fp8_(?:amax|scale)\/(?:layers\.(\d+)\.)?(.+?)(?:\.weight)?:(weight|gradient|input|output_gradient)$/;

/** The tensor of a series; null if it has none. */
export function tensorOf(series: string): Tensor | null {
  const [, layer, part, kind] = SERIES_PATTERN.exec(series) ?? [];
  if (part === undefined || kind === undefined) return null;
  return { kind: kind as TensorKind, part, layer: layer === undefined ? null : Number(layer) };
}

/** A model's weights, in the order in which a layer computes them. */
const PART_ORDER = [
  "attention.query",
  "attention.key",
  "attention.value",
  "attention.output",
  "feed_forward.gate",
  "feed_forward.up",
  "feed_forward.down",
];

/** The parts with a tensor of this kind: a layer's weights in their order, then the rest by name. */
export function partsOf(tensors: readonly Tensor[], kind: TensorKind): string[] {
  const parts = [...new Set(tensors.filter((tensor) => tensor.kind === kind).map(({ part }) => part))];
  return parts.sort((a, b) => orderOf(a) - orderOf(b) || a.localeCompare(b));
}

function orderOf(part: string): number {
  const index = PART_ORDER.indexOf(part);
  return index < 0 ? PART_ORDER.length : index;
}

/** The layers in which a part has a tensor of this kind, in order; null means outside the layers. */
export function layersOf(tensors: readonly Tensor[], kind: TensorKind, part: string): (number | null)[] {
  const found = tensors.filter((tensor) => tensor.kind === kind && tensor.part === part).map(({ layer }) => layer);
  return [...new Set(found)].sort((a, b) => (a ?? -1) - (b ?? -1));
}

export interface TensorChoice {
  kind: TensorKind;
  part: string;
  layer: number | null;
}

/** The tensor to show: the requested one if it was measured. Null if no tensor was. */
export function chooseTensor(tensors: readonly Tensor[], requested: Partial<TensorChoice>): TensorChoice | null {
  const kinds = TENSOR_KINDS.filter((kind) => tensors.some((tensor) => tensor.kind === kind));
  const kind = ifIncluded(kinds, requested.kind) ?? ifIncluded(kinds, "input") ?? kinds[0];
  if (kind === undefined) return null;
  const parts = partsOf(tensors, kind);
  const part = ifIncluded(parts, requested.part) ?? parts[0] ?? "";
  const layers = layersOf(tensors, kind, part);
  return { kind, part, layer: ifIncluded(layers, requested.layer) ?? layers[0] ?? null };
}

function ifIncluded<Value>(values: readonly Value[], requested: Value | undefined): Value | undefined {
  return requested !== undefined && values.includes(requested) ? requested : undefined;
}

/** A part's display name: `query`, `feed forward down`. */
export function partLabel(part: string): string {
  return part.replace(/^attention\./, "").replaceAll(/[._]/g, " ");
}

export function kindLabel(kind: TensorKind): string {
  return kind.replaceAll("_", " ");
}

/** The series of a tensor; with `all`, the pattern that matches it in every layer (`*` is the layer number). */
export function seriesPattern(of: "amax" | "scale", names: readonly string[], { kind, part, layer }: TensorChoice, all: boolean): string {
  const found = names.find((name) => {
    const tensor = tensorOf(name);
    return tensor?.kind === kind && tensor.part === part && tensor.layer === layer;
  });
  const name = (found ?? "").replace(/^fp8_\w+\//, `fp8_${of}/`);
  return all && layer !== null ? name.replace(`layers.${layer}.`, "layers.*.") : name;
}
