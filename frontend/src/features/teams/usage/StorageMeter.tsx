import { useSuspenseQuery } from "@tanstack/react-query";
import { Meter } from "@/components/Meter";
import { teamQuery } from "@/features/teams/queries";
import { bytes } from "@/lib/format";

/** A team's current storage usage. */
export function StorageMeter({ team }: { team: string }) {
  const { data } = useSuspenseQuery({ ...teamQuery(team), refetchInterval: 5_000 });
  const { used_bytes: used, limit_bytes: limit } = data.storage;
  return (
    <span className="flex items-center gap-3 whitespace-nowrap">
      <Meter fraction={limit === 0 ? 1 : used / limit} label="Files stored" className="w-24" />
      <span>
        {bytes(used)} <span className="text-soft">of {bytes(limit)} stored</span>
      </span>
    </span>
  );
}
