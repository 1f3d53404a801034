import { useMutation, useSuspenseQueries } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Segmented } from "@/components/Segmented";
import { Skeleton } from "@/components/Skeleton";
import { TitleRow } from "@/components/TitleRow";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";
import { LimitMeters } from "@/features/teams/limits/LimitMeters";
import { LimitNotices } from "@/features/teams/limits/LimitNotices";
import { memberUsageQuery, runUsage, usageQuery } from "@/features/teams/queries";
import { DailyUsageChart } from "@/features/teams/usage/DailyUsageChart";
import { RunUsageTable } from "@/features/teams/usage/RunUsageTable";
import { MemberUsageTable } from "@/features/teams/usage/MemberUsageTable";
import { devicesOf, fillDays, hoursByPerson, memberUsageCsv, runUsageCsv, DEFAULT_SPAN, SPANS } from "@/features/teams/usage/usageView";
import { downloadText } from "@/lib/downloadText";

/** The team's limits and current usage, and its usage by day, by person and by run. */
export function UsagePage() {
  const { team } = useParams({ from: "/$team" });
  const { days = DEFAULT_SPAN } = useSearch({ from: "/$team/usage" });
  const navigate = useNavigate();
  return (
    <>
      <TitleRow title="Usage" />
      <div className="flex flex-col gap-10">
        <div className="grid grid-cols-2 items-start gap-x-6 gap-y-10 max-desk:grid-cols-1">
          <section>
            <h2 className="mb-2 font-semibold">Now</h2>
            <AsyncBoundary>
              <QuotaMeters team={team} />
            </AsyncBoundary>
          </section>
          <section>
            <h2 className="mb-2 font-semibold">This month and total</h2>
            <div className="flex flex-col gap-3">
              <LimitNotices team={team} />
              <AsyncBoundary>
                <LimitMeters team={team} />
              </AsyncBoundary>
            </div>
          </section>
        </div>
        <section>
          <div className="mb-2 flex min-h-8 flex-wrap items-center justify-between gap-3">
            <h2 className="font-semibold">Slot-hours</h2>
            <span className="flex items-center gap-2 text-soft">
              days
              <Segmented
                label="Period in days"
                value={days}
                options={SPANS}
                onChange={(span) => void navigate({ to: ".", search: span === DEFAULT_SPAN ? {} : { days: span }, replace: true, resetScroll: false })}
              />
            </span>
          </div>
          <AsyncBoundary skeleton={<Skeleton rows={1} height={230} />}>
            <UsageReport team={team} days={Number(days)} />
          </AsyncBoundary>
        </section>
      </div>
    </>
  );
}

function UsageReport({ team, days }: { team: string; days: number }) {
  const [{ data }, { data: byDay }] = useSuspenseQueries({ queries: [usageQuery(team, days), memberUsageQuery(team, days)] });
  const byRun = useMutation({
    mutationFn: () => runUsage(team, days),
    onSuccess: (rows) => {
      downloadText(`usage-${team}-${days}-days-by-run.csv`, "text/csv", runUsageCsv(rows));
    },
  });
  if (data.days.length === 0) {
    return (
      <EmptyState title={`No usage in the last ${days} days.`}>
        <p>A run counts from when it gets its slots until it releases them.</p>
      </EmptyState>
    );
  }
  return (
    <div className="flex flex-col gap-10">
      <div className="flex flex-col gap-3">
        {devicesOf(data.days).map((device) => {
          const shown = fillDays(data.days, device, days);
          const people = hoursByPerson(
            byDay,
            device,
            shown.map(({ day }) => day),
          );
          return <DailyUsageChart key={device} device={device} days={shown} people={people} />;
        })}
        <p className="max-w-4xl text-small text-soft">
          Days are in UTC. A slot counts from when a run gets it until the run releases it, so queued and paused runs cost nothing.
          The hours of runs that are training are added every 30 seconds.
        </p>
      </div>
      <section>
        <div className="mb-2 flex min-h-8 flex-wrap items-center justify-between gap-3">
          <h2 className="font-semibold">Usage by person</h2>
          <span className="flex flex-wrap gap-2">
            <Button
              onClick={() => {
                downloadText(`usage-${team}-${days}-days.csv`, "text/csv", memberUsageCsv(byDay));
              }}
            >
              CSV by person
            </Button>
            <Button
              disabled={byRun.isPending}
              onClick={() => {
                byRun.mutate();
              }}
            >
              CSV by run
            </Button>
          </span>
        </div>
        {byRun.error !== null && <ErrorNote error={byRun.error} />}
        <MemberUsageTable members={data.members} />
      </section>
      <section>
        <h2 className="mb-2 font-semibold">Top runs by usage</h2>
        <RunUsageTable team={team} runs={data.runs} />
      </section>
    </div>
  );
}
