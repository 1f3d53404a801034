import { useSuspenseQuery } from "@tanstack/react-query";
import type { MonthlyHours, TotalStorage } from "@/api/types";
import { Meter } from "@/components/Meter";
import { limitsQuery } from "@/features/teams/limits/limitQueries";
import { bytes, count, hoursText } from "@/lib/format";

const HOURS_LABELS: Record<string, string> = { cuda: "GPU-hours", cpu: "CPU slot-hours" };

/** The month's hours with their forecast, the total storage, and the numbers of runs. */
export function LimitMeters({ team }: { team: string }) {
  const { data } = useSuspenseQuery(limitsQuery(team));
  const { limits, storage } = data;
  const month = new Intl.DateTimeFormat("en-GB", { month: "long", year: "numeric", timeZone: "UTC" }).format(new Date(data.month));
  return (
    <>
      <dl className="panel divide-y">
        {data.hours
          .filter(({ limit, used }) => limit != null || used > 0)
          .map((hours) => (
            <Row key={hours.device} label={`${HOURS_LABELS[hours.device] ?? hours.device} in ${month}`} used={hours.used} limit={hours.limit} text={hoursOf(hours)} note={forecastOf(hours)} />
          ))}
        <Row label="Total storage" used={usedBytes(storage)} limit={storage.limit_bytes} text={storageOf(storage)} note={partsOf(storage)} />
        <Row label="Runs at once" used={data.running} limit={limits.concurrent_runs} text={runsOf(data.running, limits.concurrent_runs)} />
        <Row label="Queued runs" used={data.queued} limit={limits.queued_runs} text={runsOf(data.queued, limits.queued_runs)} />
      </dl>
      <p className="mt-2 text-small text-soft">
        Months begin on the first day at 00:00 UTC. The forecast continues with the mean of the last seven days.
      </p>
    </>
  );
}

interface RowProps {
  label: string;
  used: number;
  limit: number | null | undefined;
  text: string;
  note?: string;
}

function Row({ label, used, limit, text, note }: RowProps) {
  return (
    <div className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
      <dt className="w-56 max-tablet:w-full">{label}</dt>
      <dd className="flex flex-1 items-center gap-4">
        {limit != null && <Meter fraction={limit === 0 ? 1 : used / limit} label={label} className="max-w-48 min-w-16 flex-1" />}
        <span>
          {text}
          {note !== undefined && <span className="block text-small text-soft">{note}</span>}
        </span>
      </dd>
    </div>
  );
}

function hoursOf({ used, limit }: MonthlyHours): string {
  return limit == null ? `${hoursText(used)}, no limit` : `${hoursText(used)} of ${limit.toLocaleString("en-US")}`;
}

function forecastOf({ forecast, limit }: MonthlyHours): string {
  const text = `forecast for the end of the month: ${hoursText(forecast)}`;
  return limit != null && forecast > limit ? `${text}, more than the limit` : text;
}

function usedBytes({ uploads_bytes: uploads, prepared_bytes: prepared, checkpoint_bytes: checkpoints }: TotalStorage): number {
  return uploads + prepared + checkpoints;
}

function storageOf(storage: TotalStorage): string {
  const used = bytes(usedBytes(storage));
  return storage.limit_bytes == null ? `${used}, no limit` : `${used} of ${bytes(storage.limit_bytes)}`;
}

function partsOf({ uploads_bytes: uploads, prepared_bytes: prepared, checkpoint_bytes: checkpoints, reserved_bytes: reserved }: TotalStorage): string {
  const parts = `files ${bytes(uploads)}, prepared data ${bytes(prepared)}, checkpoints and exports ${bytes(checkpoints)}`;
  return reserved > 0 ? `${parts}; ${bytes(reserved)} reserved for the next checkpoints of runs` : parts;
}

function runsOf(number: number, limit: number | null | undefined): string {
  return limit == null ? `${count(number)}, no limit` : `${count(number)} of ${count(limit)}`;
}
