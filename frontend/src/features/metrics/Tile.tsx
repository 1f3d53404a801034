interface Props {
  name: string;
  value: string;
  unit: string;
  note: string;
  /** The note in full, where it was shortened. */
  title?: string | undefined;
}

export function Tile({ name, value, unit, note, title = note }: Props) {
  return (
    <div className="-mb-px -ml-px min-w-0 border-b border-l px-4 py-3">
      <dt className="text-small text-soft">{name}</dt>
      <dd className="whitespace-nowrap">
        <span className="text-big font-semibold">{value}</span>
        {unit !== "" && <span className="ml-1 text-small text-soft">{unit}</span>}
      </dd>
      <dd className="min-h-4 truncate [font-variant-numeric:normal] text-small text-soft" title={title}>
        {note}
      </dd>
    </div>
  );
}
