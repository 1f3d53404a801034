import { useSuspenseQuery } from "@tanstack/react-query";
import { Meter } from "@/components/Meter";
import { teamQuery } from "@/features/teams/queries";
import { DEVICE_LABELS, shownQuota } from "@/features/teams/usage/usageView";
import { bytes, count } from "@/lib/format";

/** A team's current usage of its quota. */
export function QuotaMeters({ team }: { team: string }) {
  const { data } = useSuspenseQuery({ ...teamQuery(team), refetchInterval: 5_000 });
  const { storage } = data;
  const devices = shownQuota(data.quota);
  return (
    <dl className="panel divide-y">
      {data.quota.length === 0 && (
        <div className="px-4 py-2">
          <dt>Slots</dt>
          <dd className="text-soft">This team has no slots yet, so its runs are refused. Ask the site admin to set them.</dd>
        </div>
      )}
      {data.quota.length > 0 && devices.length === 0 && (
        <div className="px-4 py-2">
          <dt>Slots</dt>
          <dd className="text-soft">No node has joined yet, so runs wait.</dd>
        </div>
      )}
      {devices.map(({ device, used, limit, joined }) => (
        <div key={device} className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
          <dt className="w-24">{DEVICE_LABELS[device]?.slots ?? device}</dt>
          <dd className="flex flex-1 items-center gap-4">
            <Meter fraction={limit === 0 ? 0 : used / limit} label={`${DEVICE_LABELS[device]?.slots ?? device} in use`} className="max-w-48 min-w-16 flex-1" />
            <span className="whitespace-nowrap">
              {count(used)} <span className="text-soft">of {count(limit)} in use</span>
              {joined != null && joined < limit && <span className="block text-small text-soft">{count(joined)} on the nodes</span>}
            </span>
          </dd>
        </div>
      ))}
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1 px-4 py-2">
        <dt className="w-24">Files</dt>
        <dd className="flex flex-1 items-center gap-4">
          <Meter fraction={storage.limit_bytes === 0 ? 1 : storage.used_bytes / storage.limit_bytes} label="Files stored" className="max-w-48 min-w-16 flex-1" />
          <span className="whitespace-nowrap">
            {bytes(storage.used_bytes)} <span className="text-soft">of {bytes(storage.limit_bytes)} stored</span>
          </span>
        </dd>
      </div>
    </dl>
  );
}
