import { TriangleAlert } from "lucide-react";

interface Props {
  name: string;
  value: string;
  unit: string;
  note: string;
  /** Whether the note is a warning. */
  isWarning?: boolean;
  /** A second line of the note. */
  more?: string | undefined;
  /** The full note, if it was shortened. */
  title?: string | undefined;
}

export function Tile({ name, value, unit, note, isWarning = false, more, title = note }: Props) {
  return (
    <div className="-mb-px -ml-px min-w-0 border-b border-l px-4 py-3">
      <dt className="text-small text-soft">{name}</dt>
      <dd className="flex flex-wrap items-baseline gap-x-1">
        <span className="text-big font-semibold">{value}</span>
        {unit !== "" && <span className="text-small text-soft">{unit}</span>}
      </dd>
      <dd className="min-h-4 break-words [font-variant-numeric:normal] text-small text-soft" title={title}>
        {isWarning ? (
          <span className="text-warn">
            <TriangleAlert aria-hidden size={12} className="mr-1 inline-block align-[-1px]" />
            <span className="sr-only">warning: </span>
            <span>{note}</span>
          </span>
        ) : (
          note
        )}
        {more !== undefined && <span className="block">{more}</span>}
      </dd>
    </div>
  );
}
