import { useSuspenseInfiniteQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useRouteContext, useSearch } from "@tanstack/react-router";
import { useEffect, type ReactNode } from "react";
import type { Run } from "@/api/types";
import { ForkOrigin } from "@/app/ForkOrigin";
import { useForkStates } from "@/app/useForkStates";
import { Boundary } from "@/components/Boundary";
import { EmptyState } from "@/components/EmptyState";
import { TitleRow } from "@/components/TitleRow";
import { datasetsQuery, tokenizersQuery } from "@/features/datasets/queries";
import { cloneRun, forkRun } from "@/features/runs/fork";
import { RunForm } from "@/features/runs/RunForm";
import { runQuery, specQuery, type SpecJson } from "@/features/runs/queries";
import { useMayEdit } from "@/lib/mayEdit";
import { sectionsOf, valuesOf, type JsonSchema, type SpecValues } from "@/lib/specForm";

export function NewRunPage() {
  const { team } = useParams({ from: "/$team" });
  const { fork } = useSearch({ from: "/$team/runs/new" });
  return (
    <>
      <TitleRow
        title={fork === undefined ? "New run" : "Fork"}
        parent={
          <Link to="/$team/runs" params={{ team }} className="hover:text-accent">
            Runs
          </Link>
        }
      />
      {useMayEdit() ? (
        <Boundary>
          <Choice />
        </Boundary>
      ) : (
        <EmptyState title="Viewers cannot start runs.">Ask an owner of the team to make you an editor.</EmptyState>
      )}
    </>
  );
}

/** The form, empty or filled from the run that this one is to be like or goes on from. */
function Choice() {
  const { like, fork } = useSearch({ from: "/$team/runs/new" });
  if (fork !== undefined) return <Fork key={fork} runId={fork} />;
  return like === undefined ? <Filled start={{}} /> : <Like key={like} runId={like} />;
}

function Like({ runId }: { runId: string }) {
  const { team } = useParams({ from: "/$team" });
  const start = useStart(runId);
  return (
    <Filled
      start={start.values}
      origin={`like.${runId}`}
      submit={(spec, key) => cloneRun(team, start.run, spec, key)}
    >
      <p className="text-soft">
        Filled in as{" "}
        <Link to="/$team/runs/$runId/$tab" params={{ team, runId, tab: "configuration" }} className="text-accent underline underline-offset-2">
          {start.run.name}
        </Link>{" "}
        is. It begins at step 0; change what is to differ.
      </p>
    </Filled>
  );
}

function Fork({ runId }: { runId: string }) {
  const { team } = useParams({ from: "/$team" });
  const { checkpoint } = useSearch({ from: "/$team/runs/new" });
  const start = useStart(runId);
  const { chosen } = useForkStates(team, runId, checkpoint);
  return (
    <Filled
      start={start.values}
      origin={`fork.${runId}`}
      beginStep={chosen?.step ?? 0}
      verb="Start fork"
      submit={(spec, key) => {
        // What is shown above is what is sent: a state that came meanwhile is none that anybody has chosen.
        if (chosen === undefined) throw new Error(`Choose a state of ${start.run.name} that the fork goes on from.`);
        // From another state it is another request.
        return forkRun(team, start.run, chosen.id, spec, `${key}.${chosen.id}`);
      }}
    >
      <ForkOrigin team={team} run={start.run} checkpoint={checkpoint} />
    </Filled>
  );
}

/** Another run's configuration as fields, without its name. */
function useStart(runId: string): { run: Run; values: SpecValues } {
  const { team } = useParams({ from: "/$team" });
  const { data: run } = useSuspenseQuery({ ...runQuery(team, runId), refetchInterval: false });
  const { data: info } = useSuspenseQuery(specQuery);
  const fields = sectionsOf(info.run_spec as JsonSchema).flatMap((section) => section.fields);
  return { run, values: { ...valuesOf(run.spec, fields).values, name: "" } };
}

interface FilledProps {
  start: SpecValues;
  origin?: string;
  beginStep?: number;
  verb?: string;
  submit?: (spec: SpecJson, key: string) => Promise<Run>;
  children?: ReactNode;
}

function Filled({ start, origin, beginStep = 0, verb, submit, children }: FilledProps) {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const { dataset, view } = useSearch({ from: "/$team/runs/new" });
  const datasets = useAllDatasets(team);
  const { data: tokenizers } = useSuspenseQuery(tokenizersQuery(team));
  const navigate = useNavigate();
  if (datasets.length === 0) {
    return (
      <EmptyState title="There is no data to train on yet.">
        <p>
          <Link to="/$team/datasets" params={{ team }} className="text-accent underline">
            Upload a dataset
          </Link>{" "}
          first; a plain text file is enough.
        </p>
      </EmptyState>
    );
  }
  return (
    <RunForm
      team={team}
      person={me.id}
      datasets={datasets}
      tokenizers={tokenizers}
      start={dataset === undefined ? start : { ...start, "data.dataset": dataset }}
      beginStep={beginStep}
      view={view ?? "form"}
      onView={(next) =>
        void navigate({
          to: ".",
          search: (old) => ({ ...old, view: next === "YAML" ? next : undefined }),
          replace: true,
          resetScroll: false,
        })
      }
      {...(origin === undefined ? {} : { origin })}
      {...(verb === undefined ? {} : { verb })}
      {...(submit === undefined ? {} : { submit })}
      onCreated={(run) =>
        void navigate({ to: "/$team/runs/$runId/$tab", params: { team, runId: run.id, tab: "overview" } })
      }
    >
      {children}
    </RunForm>
  );
}

/** All of the team's datasets, however many pages they fill. */
function useAllDatasets(team: string) {
  const { data, hasNextPage, isFetching, fetchNextPage } = useSuspenseInfiniteQuery(datasetsQuery(team));
  useEffect(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  return data.pages.flatMap((page) => page.items);
}
