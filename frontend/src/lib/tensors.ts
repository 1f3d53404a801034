/** The tensors that an FP8 run measures one by one: `layers.3.attention.query.weight:input`. */

export const TENSOR_KINDS = ["weight", "gradient", "input", "output_gradient"] as const;

export type TensorKind = (typeof TENSOR_KINDS)[number];

export interface Tensor {
  kind: TensorKind;
  /** Which of a layer's weights, `attention.query`; for a weight outside the layers, its name. */
  part: string;
  /** Number of the layer, null outside the layers. */
  layer: number | null;
}

const SERIES = /^fp8_(?:amax|scale)\/(?:layers\.(\d+)\.)?(.+?)(?:\.weight)?:(weight|gradient|input|output_gradient)$/;

/** The tensor that a series is of; null where it is of none. */
export function tensorOf(series: string): Tensor | null {
  const [, layer, part, kind] = SERIES.exec(series) ?? [];
  if (part === undefined || kind === undefined) return null;
  return { kind: kind as TensorKind, part, layer: layer === undefined ? null : Number(layer) };
}

/** What a model's tensors are called, in the order in which a layer computes them. */
const ORDER = [
  "attention.query",
  "attention.key",
  "attention.value",
  "attention.output",
  "feed_forward.gate",
  "feed_forward.up",
  "feed_forward.down",
];

/** The parts that have a tensor of this kind: those of a layer in its own order, then the rest by name. */
export function partsOf(tensors: readonly Tensor[], kind: TensorKind): string[] {
  const parts = [...new Set(tensors.filter((tensor) => tensor.kind === kind).map(({ part }) => part))];
  return parts.sort((a, b) => place(a) - place(b) || a.localeCompare(b));
}

function place(part: string): number {
  const index = ORDER.indexOf(part);
  return index < 0 ? ORDER.length : index;
}

/** The layers in which a part has a tensor of this kind, in order; null stands for outside the layers. */
export function layersOf(tensors: readonly Tensor[], kind: TensorKind, part: string): (number | null)[] {
  const found = tensors.filter((tensor) => tensor.kind === kind && tensor.part === part).map(({ layer }) => layer);
  return [...new Set(found)].sort((a, b) => (a ?? -1) - (b ?? -1));
}

export interface TensorChoice {
  kind: TensorKind;
  part: string;
  layer: number | null;
}

/** The tensor to show: what was wished for, as far as it was measured. Null while nothing was. */
export function chooseTensor(tensors: readonly Tensor[], wish: Partial<TensorChoice>): TensorChoice | null {
  const kinds = TENSOR_KINDS.filter((kind) => tensors.some((tensor) => tensor.kind === kind));
  const kind = among(kinds, wish.kind) ?? among(kinds, "input") ?? kinds[0];
  if (kind === undefined) return null;
  const parts = partsOf(tensors, kind);
  const part = among(parts, wish.part) ?? parts[0] ?? "";
  const layers = layersOf(tensors, kind, part);
  return { kind, part, layer: among(layers, wish.layer) ?? layers[0] ?? null };
}

function among<Value>(values: readonly Value[], wish: Value | undefined): Value | undefined {
  return wish !== undefined && values.includes(wish) ? wish : undefined;
}

/** `query`, `feed forward down`: a part as people say it. */
export function partWords(part: string): string {
  return part.replace(/^attention\./, "").replaceAll(/[._]/g, " ");
}

export function kindWords(kind: TensorKind): string {
  return kind.replaceAll("_", " ");
}

/** Finds the series of one kind and part among those of all layers: `*` stands for the number. */
export function seriesPattern(of: "amax" | "scale", names: readonly string[], { kind, part, layer }: TensorChoice, all: boolean): string {
  const found = names.find((name) => {
    const tensor = tensorOf(name);
    return tensor?.kind === kind && tensor.part === part && tensor.layer === layer;
  });
  const name = (found ?? "").replace(/^fp8_\w+\//, `fp8_${of}/`);
  return all && layer !== null ? name.replace(`layers.${layer}.`, "layers.*.") : name;
}
