import { useSuspenseQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { EmptyState } from "@/components/EmptyState";
import { Segmented } from "@/components/Segmented";
import { Skeleton } from "@/components/Skeleton";
import { TitleRow } from "@/components/TitleRow";
import { QuotaMeters } from "@/features/teams/QuotaMeters";
import { StoredCheckpoints } from "@/features/teams/StoredCheckpoints";
import { usageQuery } from "@/features/teams/queries";
import { UsageByDay } from "@/features/teams/UsageByDay";
import { UsedByRuns } from "@/features/teams/UsedByRuns";
import { devicesOf, everyDay, FIRST_SPAN, SPANS } from "@/features/teams/usageView";

/** What the team may use and uses now, and what it has used by day and by run. */
export function UsagePage() {
  const { team } = useParams({ from: "/$team" });
  const { days = FIRST_SPAN } = useSearch({ from: "/$team/usage" });
  const navigate = useNavigate();
  return (
    <>
      <TitleRow title="Usage" />
      <div className="flex max-w-4xl flex-col gap-10">
        <section>
          <h2 className="mb-2 font-semibold">Now</h2>
          <Boundary>
            <QuotaMeters team={team} />
          </Boundary>
          <StoredCheckpoints team={team} days={Number(days)} />
        </section>
        <section>
          <div className="mb-2 flex min-h-8 flex-wrap items-center justify-between gap-3">
            <h2 className="font-semibold">Slot-hours</h2>
            <span className="flex items-center gap-2 text-soft">
              days
              <Segmented
                label="Days looked at"
                value={days}
                options={SPANS}
                onChange={(span) => void navigate({ to: ".", search: span === FIRST_SPAN ? {} : { days: span }, replace: true, resetScroll: false })}
              />
            </span>
          </div>
          <Boundary skeleton={<Skeleton rows={1} height={230} />}>
            <Used team={team} days={Number(days)} />
          </Boundary>
        </section>
      </div>
    </>
  );
}

function Used({ team, days }: { team: string; days: number }) {
  const { data } = useSuspenseQuery(usageQuery(team, days));
  if (data.days.length === 0) {
    return (
      <EmptyState title={`Nothing was used in the last ${days} days.`}>
        <p>A run counts from the moment that it holds slots until it gives them back.</p>
      </EmptyState>
    );
  }
  return (
    <div className="flex flex-col gap-10">
      <div className="flex flex-col gap-3">
        {devicesOf(data.days).map((device) => (
          <UsageByDay key={device} device={device} days={everyDay(data.days, device, days)} />
        ))}
        <p className="text-small text-soft">
          Days are those of UTC. A slot counts from the moment that a run holds it until it gives it back, so waiting and pausing cost nothing.
        </p>
      </div>
      <section>
        <h2 className="mb-2 font-semibold">Runs that used most</h2>
        <UsedByRuns team={team} runs={data.runs} />
      </section>
    </div>
  );
}
