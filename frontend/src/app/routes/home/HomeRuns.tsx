import { useSuspenseInfiniteQuery, useSuspenseQueries } from "@tanstack/react-query";
import { Link, useParams, useRouteContext } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";
import type { Run, RunState } from "@/api/types";
import { GettingStarted } from "@/app/routes/home/GettingStarted";
import { HomeSection } from "@/app/routes/home/HomeSection";
import { Button } from "@/components/Button";
import { ACTIVE_STATES, FAILED_STATES, homeRunsQuery, WAITING_STATES } from "@/features/runs/list/homeQueries";
import { lastSeen, markSeen, newlyFailed } from "@/features/runs/list/lastSeen";
import { DEFAULT_COLUMNS, storedColumns, visibleColumns } from "@/features/runs/list/runColumns";
import { RunList } from "@/features/runs/list/RunList";
import { runsQuery } from "@/features/runs/queries";
import { plural } from "@/lib/format";

/** Per section; the runs table shows the rest. */
const MAX_ROWS = 12;

/** New failures, active runs and waiting runs. */
export function HomeRuns() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const [lastSeenAt, setLastSeenAt] = useState(() => lastSeen(me.id, team));
  const { data: allRuns } = useSuspenseInfiniteQuery(runsQuery(team, {}));
  const [running, waiting, failed] = useSuspenseQueries({
    queries: [homeRunsQuery(team, ACTIVE_STATES), homeRunsQuery(team, WAITING_STATES), homeRunsQuery(team, FAILED_STATES)],
  });
  if (allRuns.pages[0]?.items.length === 0) return <GettingStarted />;
  const newFailures = newlyFailed(failed.data.items, lastSeenAt);
  const columns = (storedColumns(me.id) ?? DEFAULT_COLUMNS).filter((value) => value !== "by");
  const renderList = (label: string, all: readonly Run[], state: readonly RunState[], hasMoreRuns: boolean) => {
    const runs = all.slice(0, MAX_ROWS);
    return (
      <>
        <RunList team={team} label={label} runs={runs} columns={visibleColumns(columns, runs)} />
        {all.length > runs.length && (
          <Link
            to="/$team/runs"
            params={{ team }}
            search={{ state: [...state], ...(state === FAILED_STATES ? { sort: "ended" } : {}) }}
            className="mt-2 inline-block text-accent underline underline-offset-2"
          >
            {hasMoreRuns && "At least "}
            {plural(all.length - runs.length, "more run")}
          </Link>
        )}
      </>
    );
  };
  // The latest failures come first, so if all of them are new there may be more.
  const failuresCapped = hasMore(failed.data) && newFailures.length === failed.data.items.length;
  const runningRuns = running.data.items;
  const waitingRuns = waiting.data.items;
  return (
    <div className="flex min-w-0 flex-col gap-6">
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
          {renderList("Failed runs", newFailures, FAILED_STATES, failuresCapped)}
        </HomeSection>
      )}
      <HomeSection title="Active runs">{runningRuns.length === 0 ? <EmptyNote>No active runs.</EmptyNote> : renderList("Active runs", runningRuns, ACTIVE_STATES, hasMore(running.data))}</HomeSection>
      <HomeSection title="Waiting runs">
        {waitingRuns.length === 0 ? <EmptyNote>No waiting runs.</EmptyNote> : renderList("Waiting runs", waitingRuns, WAITING_STATES, hasMore(waiting.data))}
      </HomeSection>
      {newFailures.length === 0 && <p className="text-soft">No runs failed since your last visit.</p>}
    </div>
  );
}

/** Whether there are more than were loaded. */
function hasMore({ next_cursor: next }: { next_cursor?: string | null }): boolean {
  return next !== null && next !== undefined;
}

function EmptyNote({ children }: { children: ReactNode }) {
  return <p className="panel px-4 py-3 text-soft">{children}</p>;
}
