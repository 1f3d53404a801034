import { useQuery } from "@tanstack/react-query";
import { Time } from "@/components/Time";
import { limitsQuery } from "@/features/teams/limits/limitQueries";

/** This month's notices that 80 or 100 % of a limit is used. Empty if there are none. */
export function LimitNotices({ team }: { team: string }) {
  const { data } = useQuery(limitsQuery(team));
  if (data === undefined || data.notices.length === 0) return null;
  return (
    <section aria-label="Notices about limits">
      <ul className="panel divide-y">
        {data.notices.map(({ time, resource, member, percent, sentence }) => (
          <li key={`${time} ${resource} ${member ?? ""} ${percent}`} className="flex flex-wrap justify-between gap-x-4 px-4 py-2">
            <span className={percent === 100 ? "text-bad" : "text-warn"}>{sentence}</span>
            <span className="text-small text-soft">
              <Time at={time} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
