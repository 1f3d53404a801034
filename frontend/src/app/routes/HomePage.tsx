import { useSuspenseInfiniteQuery, useSuspenseQueries } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useRouteContext } from "@tanstack/react-router";
import { useMemo, useState, type ReactNode } from "react";
import type { Run, RunState } from "@/api/types";
import { Boundary } from "@/components/Boundary";
import { Button, buttonClass } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { EmptyState } from "@/components/EmptyState";
import { ForEditors } from "@/components/ForEditors";
import { TitleRow } from "@/components/TitleRow";
import { AT_WORK, FAILED, homeRunsQuery, WAITING } from "@/features/runs/home";
import { runsQuery } from "@/features/runs/queries";
import { RunList } from "@/features/runs/RunList";
import { FIRST_COLUMNS, shownColumns, storedColumns } from "@/features/runs/runColumns";
import { markSeen, newlyFailed, seenUntil } from "@/features/runs/seen";
import { QuotaMeters } from "@/features/teams/QuotaMeters";
import { plural } from "@/lib/format";
import { useMayEdit } from "@/lib/mayEdit";
import { useHotkeys } from "@/lib/useHotkeys";

/** What runs, what waits and why, what failed since one looked, and how much of the quota is left. */
export function HomePage() {
  const { team } = useParams({ from: "/$team" });
  const navigate = useNavigate();
  const mayEdit = useMayEdit();
  const keys = useMemo((): Record<string, () => void> => {
    const start = () => void navigate({ to: "/$team/runs/new", params: { team } });
    return mayEdit ? { n: start } : {};
  }, [mayEdit, navigate, team]);
  useHotkeys(keys);
  return (
    <>
      <TitleRow
        title="Home"
        actions={
          <ForEditors>
            <Link to="/$team/runs/new" params={{ team }} className={buttonClass("primary")}>
              New run
            </Link>
          </ForEditors>
        }
      />
      <div className="grid grid-cols-[minmax(0,1fr)_320px] items-start gap-6 max-desk:grid-cols-1">
        <Boundary>
          <Runs />
        </Boundary>
        <Part title="Quota">
          <Boundary>
            <QuotaMeters team={team} />
          </Boundary>
        </Part>
      </div>
    </>
  );
}

/** Of each part; what is more stands in the table of runs. */
const MOST_ROWS = 12;

function Runs() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const [seen, setSeen] = useState(() => seenUntil(me.id, team));
  const { data: any } = useSuspenseInfiniteQuery(runsQuery(team, {}));
  const [running, waiting, failed] = useSuspenseQueries({
    queries: [homeRunsQuery(team, AT_WORK), homeRunsQuery(team, WAITING), homeRunsQuery(team, FAILED)],
  });
  if (any.pages[0]?.items.length === 0) return <NoRuns />;
  const fresh = newlyFailed(failed.data.items, seen);
  const columns = (storedColumns(me.id) ?? FIRST_COLUMNS).filter((one) => one !== "by");
  const list = (label: string, all: readonly Run[], state: readonly RunState[], capped: boolean) => {
    const runs = all.slice(0, MOST_ROWS);
    return (
      <>
        <RunList team={team} label={label} runs={runs} columns={shownColumns(columns, runs)} />
        {all.length > runs.length && (
          <Link
            to="/$team/runs"
            params={{ team }}
            search={{ state: [...state], ...(state === FAILED ? { sort: "ended" } : {}) }}
            className="mt-2 inline-block text-accent underline underline-offset-2"
          >
            {capped && "At least "}
            {plural(all.length - runs.length, "more run")}
          </Link>
        )}
      </>
    );
  };
  // Those that failed last come first: where all are fresh there may be more.
  const manyFailed = isCapped(failed.data) && fresh.length === failed.data.items.length;
  const at = running.data.items;
  const inLine = waiting.data.items;
  return (
    <div className="flex min-w-0 flex-col gap-6">
      {fresh.length > 0 && (
        <Part
          title={`${manyFailed ? "At least " : ""}${plural(fresh.length, "run")} failed since you looked`}
          action={
            <Button
              look="quiet"
              onClick={() => {
                setSeen(markSeen(me.id, team));
              }}
            >
              I have seen {fresh.length === 1 ? "it" : "them"}
            </Button>
          }
        >
          {list("Runs that failed", fresh, FAILED, manyFailed)}
        </Part>
      )}
      <Part title="Runs now">{at.length === 0 ? <Nothing>Nothing runs.</Nothing> : list("Runs now", at, AT_WORK, isCapped(running.data))}</Part>
      <Part title="Waits">
        {inLine.length === 0 ? <Nothing>Nothing waits.</Nothing> : list("Runs that wait", inLine, WAITING, isCapped(waiting.data))}
      </Part>
      {fresh.length === 0 && <p className="text-soft">Nothing failed since you looked.</p>}
    </div>
  );
}

/** Whether there are more than were asked for. */
function isCapped({ next_cursor: next }: { next_cursor?: string | null }): boolean {
  return next !== null && next !== undefined;
}

function Part({ title, action, children }: { title: string; action?: ReactNode; children: ReactNode }) {
  return (
    <section className="min-w-0">
      <div className="mb-2 flex min-h-8 items-center justify-between gap-3">
        <h2 className="font-semibold">{title}</h2>
        {action}
      </div>
      {children}
    </section>
  );
}

function Nothing({ children }: { children: ReactNode }) {
  return <p className="panel px-4 py-3 text-soft">{children}</p>;
}

const COMMAND = "trainwright datasets upload letters letters.jsonl";

/** The first look: what to do, in the order in which it is done. */
function NoRuns() {
  const { team } = useParams({ from: "/$team" });
  return (
    <EmptyState title="No runs yet.">
      <ol className="flex list-decimal flex-col gap-2 pl-5">
        <li>
          <Link to="/$team/datasets" params={{ team }} className="text-accent underline underline-offset-2">
            Upload a dataset
          </Link>
          ; a plain text file is enough.
        </li>
        <li>Start a run from it. The form begins with a small model, and says what it will cost.</li>
        <li>Watch its loss fall here, and take the weights home.</li>
      </ol>
      <p className="max-w-full min-w-0">
        Or from a terminal: <Copyable text={COMMAND} />
      </p>
    </EmptyState>
  );
}
