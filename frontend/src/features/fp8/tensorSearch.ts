import { TENSOR_KINDS, type TensorChoice } from "@/features/fp8/tensors";

/** The selected tensor, as in the address. */
export interface TensorSearch {
  kind?: TensorChoice["kind"];
  part?: string;
  layer?: number;
}

export function parseTensorSearch({ kind, part, layer }: Record<string, unknown>): TensorSearch {
  const known = TENSOR_KINDS.find((one) => one === kind);
  return {
    ...(known === undefined ? {} : { kind: known }),
    ...(typeof part === "string" ? { part } : {}),
    ...(typeof layer === "number" && Number.isInteger(layer) && layer >= 0 ? { layer } : {}),
  };
}

export function searchOfTensor({ kind, part, layer }: TensorChoice): TensorSearch {
  return { kind, part, ...(layer === null ? {} : { layer }) };
}
