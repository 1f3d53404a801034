import { useSuspenseQuery } from "@tanstack/react-query";
import type { MonthlyHours, TotalStorage } from "@/api/types";
import { MeterRow } from "@/components/MeterRow";
import { limitsQuery } from "@/features/teams/limits/limitQueries";
import { usedBytes } from "@/features/teams/limits/usedBytes";
import { bytes, count, hoursText } from "@/lib/format";

const HOURS_LABELS: Record<string, string> = { cuda: "GPU-hours", cpu: "CPU slot-hours" };

/** The month's hours with their forecast, the total storage, and the numbers of runs. */
export function LimitMeters({ team }: { team: string }) {
  const { data } = useSuspenseQuery(limitsQuery(team));
  const { limits, storage } = data;
  const month = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" }).format(new Date(data.month));
  return (
    <>
      <dl className="panel @container divide-y">
        {data.hours
          .filter(({ limit, used }) => limit != null || used > 0)
          .map((hours) => (
            <MeterRow key={hours.device} label={`${HOURS_LABELS[hours.device] ?? hours.device} in ${month}`} fraction={fractionOf(hours.used, hours.limit)} note={forecastOf(hours)}>
              {hoursOf(hours)}
            </MeterRow>
          ))}
        <MeterRow label="Total storage" fraction={fractionOf(usedBytes(storage), storage.limit_bytes)} note={partsOf(storage)}>
          {storageOf(storage)}
        </MeterRow>
        <MeterRow label="Runs at once" fraction={fractionOf(data.running, limits.concurrent_runs)}>
          {runsOf(data.running, limits.concurrent_runs)}
        </MeterRow>
        <MeterRow label="Queued runs" fraction={fractionOf(data.queued, limits.queued_runs)}>
          {runsOf(data.queued, limits.queued_runs)}
        </MeterRow>
      </dl>
      <p className="mt-2 text-small text-soft">
        Months begin on the first day at 00:00 UTC. The forecast continues with the mean of the last seven days.
      </p>
    </>
  );
}

function fractionOf(used: number, limit: number | null | undefined): number | undefined {
  if (limit == null) return undefined;
  return limit === 0 ? 1 : used / limit;
}

function hoursOf({ used, limit }: MonthlyHours): string {
  return limit == null ? `${hoursText(used)}, no limit` : `${hoursText(used)} of ${limit.toLocaleString("en-US")}`;
}

function forecastOf({ forecast, limit }: MonthlyHours): string {
  const text = `forecast for the end of the month: ${hoursText(forecast)}`;
  return limit != null && forecast > limit ? `${text}, more than the limit` : text;
}

function storageOf(storage: TotalStorage): string {
  const used = bytes(usedBytes(storage));
  return storage.limit_bytes == null ? `${used}, no limit` : `${used} of ${bytes(storage.limit_bytes)}`;
}

function partsOf({ uploads_bytes: uploads, prepared_bytes: prepared, checkpoint_bytes: checkpoints, reserved_bytes: reserved }: TotalStorage): string {
  const parts = `uploaded files ${bytes(uploads)}, prepared data ${bytes(prepared)}, checkpoints and exports ${bytes(checkpoints)}`;
  return reserved > 0 ? `${parts}; ${bytes(reserved)} reserved for the next checkpoints of runs` : parts;
}

function runsOf(number: number, limit: number | null | undefined): string {
  return limit == null ? `${count(number)}, no limit` : `${count(number)} of ${count(limit)}`;
}
