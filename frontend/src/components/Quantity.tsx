/** A number and its unit, with the unit smaller and softer. */
export function Quantity({ value, unit }: { value: string; unit: string }) {
  return (
    <span className="whitespace-nowrap">
      {value} <span className="text-small text-soft normal-nums">{unit}</span>
    </span>
  );
}
