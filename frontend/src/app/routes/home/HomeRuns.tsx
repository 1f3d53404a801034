import { useSuspenseInfiniteQuery, useSuspenseQueries } from "@tanstack/react-query";
import { Link, useParams, useRouteContext } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";
import type { Run, RunState } from "@/api/types";
import { FirstSteps } from "@/app/routes/home/FirstSteps";
import { HomeRunLinks } from "@/app/routes/home/HomeRunLinks";
import { HomeSection } from "@/app/routes/home/HomeSection";
import { Button } from "@/components/Button";
import { ACTIVE_STATES, FAILED_STATES, homeRunsQuery, PAUSED_STATES, SUCCEEDED_STATES, WAITING_STATES } from "@/features/runs/list/homeQueries";
import { lastSeen, markSeen, newlyFailed } from "@/features/runs/list/lastSeen";
import { RunCard } from "@/features/runs/list/RunCard";
import { RunLines } from "@/features/runs/list/RunLines";
import { runsQuery } from "@/features/runs/queries";
import { plural } from "@/lib/format";
import { useNow } from "@/lib/hooks/useNow";
import { idsOfSharedNames } from "@/lib/sharedNames";

/** Maximum number of runs per section; the runs table shows the rest. */
const MAX_CARDS = 6;
const MAX_LINES = 8;
const MAX_FINISHED = 5;

/** What runs now, what waits and why, the longest waiting first, what failed and what to do, and what finished recently. */
export function HomeRuns() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const now = useNow();
  const [lastSeenAt, setLastSeenAt] = useState(() => lastSeen(me.id, team));
  const { data: allRuns } = useSuspenseInfiniteQuery(runsQuery(team, {}));
  const [active, waiting, paused, failed, succeeded] = useSuspenseQueries({
    queries: [ACTIVE_STATES, WAITING_STATES, PAUSED_STATES, FAILED_STATES, SUCCEEDED_STATES].map((state) => homeRunsQuery(team, state)),
  }).map(({ data }) => data);
  const sharedNames = idsOfSharedNames([active, waiting, paused, failed, succeeded].flatMap((page) => page?.items ?? []));
  const hasRuns = (allRuns.pages[0]?.items.length ?? 0) > 0;
  const newFailures = newlyFailed(failed?.items ?? [], lastSeenAt);
  // The latest failures come first, so if all of them are new there may be more.
  const failuresCapped = hasMore(failed) && newFailures.length === failed?.items.length;
  const actions = (run: Run) => <HomeRunLinks team={team} run={run} now={now} canSeeNodes={me.site_admin} />;
  const renderLines = (label: string, runs: readonly Run[], max: number, state: readonly RunState[], more: boolean) =>
    runs.length > 0 && (
      <>
        <RunLines team={team} label={label} runs={runs.slice(0, max)} now={now} sharedNames={sharedNames} actions={actions} />
        <MoreRuns team={team} left={runs.length - max} state={state} hasMoreRuns={more} />
      </>
    );
  const list = (page: typeof active) => page?.items ?? [];
  return (
    <div className="flex min-w-0 flex-col gap-6">
      <FirstSteps hasRuns={hasRuns} hasFinished={list(succeeded).length > 0} />
      {newFailures.length > 0 && (
        <HomeSection
          title={`${failuresCapped ? "At least " : ""}${plural(newFailures.length, "run")} failed since your last visit`}
          action={
            <Button
              variant="quiet"
              onClick={() => {
                setLastSeenAt(markSeen(me.id, team));
              }}
            >
              Dismiss
            </Button>
          }
        >
          {renderLines("Failed runs", newFailures, MAX_LINES, FAILED_STATES, failuresCapped)}
        </HomeSection>
      )}
      {hasRuns && (
        <HomeSection title="Running now">
          {list(active).length === 0 ? (
            <EmptyNote>Nothing is running.</EmptyNote>
          ) : (
            <ul aria-label="Running now" className="grid grid-cols-2 gap-3 max-tablet:grid-cols-1">
              {list(active)
                .slice(0, MAX_CARDS)
                .map((run) => (
                  <RunCard key={run.id} team={team} run={run} now={now} hasUniqueName={!sharedNames.has(run.id)} />
                ))}
            </ul>
          )}
          <MoreRuns team={team} left={list(active).length - MAX_CARDS} state={ACTIVE_STATES} hasMoreRuns={hasMore(active)} />
        </HomeSection>
      )}
      {list(waiting).length > 0 && (
        <HomeSection title="Queued">{renderLines("Queued runs", list(waiting).toReversed(), MAX_LINES, WAITING_STATES, hasMore(waiting))}</HomeSection>
      )}
      {list(paused).length > 0 && (
        <HomeSection title="Paused">{renderLines("Paused runs", list(paused), MAX_FINISHED, PAUSED_STATES, hasMore(paused))}</HomeSection>
      )}
      {list(succeeded).length > 0 && (
        <HomeSection title="Recently finished">{renderLines("Finished runs", list(succeeded), MAX_FINISHED, SUCCEEDED_STATES, hasMore(succeeded))}</HomeSection>
      )}
      {hasRuns && newFailures.length === 0 && <p className="text-soft">No runs failed since your last visit.</p>}
    </div>
  );
}

/** Whether there are more than were loaded. */
function hasMore(page: { next_cursor?: string | null } | undefined): boolean {
  return page?.next_cursor != null;
}

interface MoreRunsProps {
  team: string;
  /** How many of the loaded runs are not shown. */
  left: number;
  state: readonly RunState[];
  hasMoreRuns: boolean;
}

function MoreRuns({ team, left, state, hasMoreRuns }: MoreRunsProps) {
  if (left <= 0) return null;
  const hasEnded = state === FAILED_STATES || state === SUCCEEDED_STATES;
  return (
    <Link
      to="/$team/runs"
      params={{ team }}
      search={{ state: [...state], ...(hasEnded ? { sort: "ended" } : {}) }}
      className="mt-2 inline-block text-accent underline underline-offset-2"
    >
      {hasMoreRuns && "At least "}
      {plural(left, "more run")}
    </Link>
  );
}

function EmptyNote({ children }: { children: ReactNode }) {
  return <p className="panel px-4 py-3 text-soft">{children}</p>;
}
