import { useSuspenseQuery } from "@tanstack/react-query";
import { MeterRow } from "@/components/MeterRow";
import { teamQuery } from "@/features/teams/queries";
import { DEVICE_LABELS, quotaFraction, quotaNote, shownQuota } from "@/features/teams/usage/usageView";
import { bytes, count } from "@/lib/format";

/** A team's slots in use and uploaded files, with their limits. */
export function QuotaMeters({ team }: { team: string }) {
  const { data } = useSuspenseQuery({ ...teamQuery(team), refetchInterval: 5_000 });
  const { storage } = data;
  const devices = shownQuota(data.quota);
  return (
    <dl className="panel @container divide-y">
      {data.quota.length === 0 && (
        <div className="px-4 py-2">
          <dt>Slots</dt>
          <dd className="text-soft">This team has no slots yet, so it cannot start runs. Ask a site admin to set its slot limit.</dd>
        </div>
      )}
      {data.quota.length > 0 && devices.length === 0 && (
        <div className="px-4 py-2">
          <dt>Slots</dt>
          <dd className="text-soft">No node has joined yet, so runs wait.</dd>
        </div>
      )}
      {devices.map((quota) => {
        const { device, used, limit } = quota;
        const slots = DEVICE_LABELS[device]?.slots ?? device;
        const note = quotaNote(quota);
        return (
          <MeterRow key={device} label={slots} meterLabel={`${slots} in use`} fraction={quotaFraction(quota)} note={note}>
            {count(used)} in use<span className="text-soft">, at most {count(limit)} at once</span>
          </MeterRow>
        );
      })}
      <MeterRow label="Uploaded files" meterLabel="Uploaded files stored" fraction={storage.limit_bytes === 0 ? 1 : storage.used_bytes / storage.limit_bytes}>
        {bytes(storage.used_bytes)} <span className="text-soft">of {bytes(storage.limit_bytes)} stored</span>
      </MeterRow>
    </dl>
  );
}
