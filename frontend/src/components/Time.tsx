import { fullTime, moment } from "@/lib/format";

/** A short time; hover shows the date and UTC offset. */
export function Time({ at }: { at: string }) {
  return (
    <time dateTime={at} title={fullTime(at)} className="whitespace-nowrap">
      {moment(at)}
    </time>
  );
}
