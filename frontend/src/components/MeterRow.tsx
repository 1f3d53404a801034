import type { ReactNode } from "react";
import { Meter } from "@/components/Meter";

interface Props {
  label: string;
  /** What a screen reader calls the meter. */
  meterLabel?: string;
  /** 0 to 1; without a limit there is none. */
  fraction?: number | undefined;
  note?: string | undefined;
  children: ReactNode;
}

/** One row of a list of meters, a `dl` that is a `@container`: what is measured, how full it is, and the numbers. */
export function MeterRow({ label, meterLabel = label, fraction, note, children }: Props) {
  return (
    <div className="grid grid-cols-[minmax(0,1fr)_auto] items-center gap-x-4 gap-y-1 px-4 py-2 @3xl:grid-cols-[17rem_12rem_minmax(0,1fr)] @3xl:gap-y-0">
      <dt>{label}</dt>
      {fraction !== undefined && (
        <dd className="order-1 col-span-full @3xl:order-none @3xl:col-span-1">
          <Meter fraction={fraction} label={meterLabel} className="w-full" />
        </dd>
      )}
      <dd className="text-right @3xl:col-start-3 @3xl:text-left">{children}</dd>
      {note !== undefined && <dd className="order-2 col-span-full text-small text-soft @3xl:col-span-1 @3xl:col-start-3">{note}</dd>}
    </div>
  );
}
