import { Select } from "@/components/Select";
import { kindLabel, partLabel, TENSOR_KINDS, type TensorKind } from "@/features/fp8/tensors";

interface Props {
  kind: TensorKind;
  part: string;
  parts: readonly string[];
  onChange: (next: { kind?: TensorKind; part?: string }) => void;
}

/** Selects the tensors of the heat map. */
export function TensorControls({ kind, part, parts, onChange }: Props) {
  return (
    <>
      <Select
        aria-label="Part of the model"
        value={part}
        onChange={(event) => {
          onChange({ part: event.target.value });
        }}
      >
        {parts.map((part) => (
          <option key={part} value={part}>
            {partLabel(part)}
          </option>
        ))}
      </Select>
      <Select
        aria-label="Kind of tensor"
        value={kind}
        onChange={(event) => {
          onChange({ kind: event.target.value as TensorKind });
        }}
      >
        {TENSOR_KINDS.map((kind) => (
          <option key={kind} value={kind}>
            {kindLabel(kind)}
          </option>
        ))}
      </Select>
    </>
  );
}
