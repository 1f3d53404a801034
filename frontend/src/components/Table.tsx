import type { ReactNode } from "react";

/** A table to the edge of its panel; it scrolls sideways rather than break its rows, by keyboard too. */
export function Table({ label, head, children }: { label: string; head: ReactNode; children: ReactNode }) {
  return (
    <div className="panel relative overflow-x-auto" role="region" aria-label={label} tabIndex={0}>
      <table className="w-full border-collapse text-left">
        <thead>
          <tr className="h-8 border-b">{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export const rowClass = "border-b last:border-b-0 hover:bg-raised focus-within:bg-raised";
