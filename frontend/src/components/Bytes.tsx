import { Quantity } from "@/components/Quantity";
import { bytesParts, count } from "@/lib/format";

export function Bytes({ value }: { value: number }) {
  const [number, unit] = bytesParts(value);
  return (
    <span title={`${count(value)} bytes`}>
      <Quantity value={number} unit={unit} />
    </span>
  );
}
