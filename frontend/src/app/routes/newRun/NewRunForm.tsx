import { usePrefetchQuery, useQuery, useSuspenseInfiniteQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useRouteContext, useSearch } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { EmptyState } from "@/components/EmptyState";
import { Skeleton } from "@/components/Skeleton";
import { datasetsQuery, tokenizersQuery } from "@/features/datasets/queries";
import { RunForm } from "@/features/runs/form/RunForm";
import { runNamesQuery, type SpecJson } from "@/features/runs/queries";
import type { SpecValues } from "@/features/runs/spec/specFields";
import { useAllPages } from "@/lib/hooks/useAllPages";

interface Props {
  source: SpecValues;
  origin?: string;
  /** The name of an unnamed run, if it is not made from its data and model. */
  nameBase?: string;
  startStep?: number;
  checkpoint?: string;
  /** Why a fork cannot change its model. */
  modelNote?: ReactNode;
  submitLabel?: string;
  submit?: (spec: SpecJson, key: string) => Promise<Run>;
  children?: ReactNode;
}

const NO_NAMES: readonly string[] = [];

/** The form of a new run with initial values; asks for a dataset first if there is none. */
export function NewRunForm({ source, origin, nameBase, startStep = 0, checkpoint, modelNote, submitLabel, submit, children }: Props) {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const { dataset, view } = useSearch({ from: "/$team/runs/new" });
  usePrefetchQuery(runNamesQuery(team));
  const datasets = useAllDatasets(team);
  const { data: tokenizers } = useSuspenseQuery(tokenizersQuery(team));
  const { data: takenNames = NO_NAMES, isPending: areNamesPending } = useQuery(runNamesQuery(team));
  const navigate = useNavigate();
  if (datasets.length === 0) {
    return (
      <EmptyState title="No dataset to train on yet.">
        <p>
          <Link to="/$team/datasets" params={{ team }} className="text-accent underline">
            Upload a dataset
          </Link>{" "}
          first; a plain text file is enough.
        </p>
      </EmptyState>
    );
  }
  // Otherwise the name that it proposes would change while it is read.
  if (areNamesPending) return <Skeleton />;
  return (
    <RunForm
      team={team}
      userId={me.id}
      datasets={datasets}
      tokenizers={tokenizers}
      prefill={dataset === undefined ? source : { ...source, "data.dataset": dataset }}
      startStep={startStep}
      takenNames={takenNames}
      nameBase={nameBase}
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
      {...(checkpoint === undefined ? {} : { checkpoint })}
      {...(modelNote === undefined ? {} : { modelNote })}
      {...(submitLabel === undefined ? {} : { submitLabel })}
      {...(submit === undefined ? {} : { submit })}
      onCreated={(run) =>
        void navigate({ to: "/$team/runs/$runId/$tab", params: { team, runId: run.id, tab: "overview" } })
      }
    >
      {children}
    </RunForm>
  );
}

/** All of the team's datasets, loaded page by page. */
function useAllDatasets(team: string) {
  const query = useSuspenseInfiniteQuery(datasetsQuery(team));
  useAllPages(query);
  return query.data.pages.flatMap((page) => page.items);
}
