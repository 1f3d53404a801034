import { fullTime, moment } from "@/lib/format";

/** A moment: short in the text, with date and offset on hover. */
export function Time({ at }: { at: string }) {
  return (
    <time dateTime={at} title={fullTime(at)} className="whitespace-nowrap">
      {moment(at)}
    </time>
  );
}
