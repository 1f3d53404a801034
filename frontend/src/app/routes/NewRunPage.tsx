import { useSuspenseInfiniteQuery, useSuspenseQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { EmptyState } from "@/components/EmptyState";
import { TitleRow } from "@/components/TitleRow";
import { datasetsQuery, tokenizersQuery } from "@/features/datasets/queries";
import { RunForm } from "@/features/runs/RunForm";
import { runQuery, specQuery } from "@/features/runs/queries";
import { useMayEdit } from "@/lib/mayEdit";
import { sectionsOf, valuesOf, type JsonSchema, type SpecValues } from "@/lib/specForm";

export function NewRunPage() {
  const { team } = useParams({ from: "/$team" });
  return (
    <>
      <TitleRow
        title="New run"
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

/** The form, empty or filled from the run that this one is to be like. */
function Choice() {
  const { like } = useSearch({ from: "/$team/runs/new" });
  return like === undefined ? <Filled start={{}} /> : <Like runId={like} />;
}

function Like({ runId }: { runId: string }) {
  const { team } = useParams({ from: "/$team" });
  const { data: run } = useSuspenseQuery(runQuery(team, runId));
  const { data: info } = useSuspenseQuery(specQuery);
  const fields = sectionsOf(info.run_spec as JsonSchema).flatMap((section) => section.fields);
  const { values } = valuesOf(run.spec, fields);
  return <Filled start={{ ...values, name: "" }} />;
}

function Filled({ start }: { start: SpecValues }) {
  const { team } = useParams({ from: "/$team" });
  const { dataset } = useSearch({ from: "/$team/runs/new" });
  const { data } = useSuspenseInfiniteQuery(datasetsQuery(team));
  const { data: tokenizers } = useSuspenseQuery(tokenizersQuery(team));
  const navigate = useNavigate();
  const datasets = data.pages.flatMap((page) => page.items);
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
      datasets={datasets}
      tokenizers={tokenizers}
      start={dataset === undefined ? start : { ...start, "data.dataset": dataset }}
      onCreated={(run) =>
        void navigate({ to: "/$team/runs/$runId/$tab", params: { team, runId: run.id, tab: "overview" } })
      }
    />
  );
}
