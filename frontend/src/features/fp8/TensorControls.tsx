import { Select } from "@/components/Select";
import { kindWords, partWords, TENSOR_KINDS, type TensorKind } from "@/lib/tensors";

interface Props {
  kind: TensorKind;
  part: string;
  parts: readonly string[];
  onChange: (next: { kind?: TensorKind; part?: string }) => void;
}

/** Which tensors the map shows. */
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
        {parts.map((one) => (
          <option key={one} value={one}>
            {partWords(one)}
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
        {TENSOR_KINDS.map((one) => (
          <option key={one} value={one}>
            {kindWords(one)}
          </option>
        ))}
      </Select>
    </>
  );
}
