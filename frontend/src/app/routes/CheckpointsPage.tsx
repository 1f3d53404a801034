import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import type { Checkpoint } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { EmptyState } from "@/components/EmptyState";
import { Segmented } from "@/components/Segmented";
import { TitleRow } from "@/components/TitleRow";
import type { CheckpointFilter } from "@/features/checkpoints/queries";
import { CleanUpButton } from "@/features/checkpoints/CleanUpButton";
import { TeamCheckpointList } from "@/features/checkpoints/TeamCheckpointList";

const CONTENT_OPTIONS = ["all", "states", "weights"] as const;
const KIND_BY_OPTION = { all: undefined, states: "state", weights: "export" } as const;

/** The checkpoints of the team's runs. */
export function CheckpointsPage() {
  const { team } = useParams({ from: "/$team" });
  const filter = useSearch({ from: "/$team/checkpoints" });
  const navigate = useNavigate();
  const setFilter = (next: CheckpointFilter) => void navigate({ to: ".", search: next, replace: true, resetScroll: false });
  const fork = ({ run, id }: Checkpoint) =>
    void navigate({ to: "/$team/runs/new", params: { team }, search: { fork: run, checkpoint: id } });
  return (
    <>
      <TitleRow title="Checkpoints" actions={<CleanUpButton team={team} runs={null} />} />
      <div className="mb-4 flex flex-wrap items-center gap-4">
        <Segmented
          label="Content"
          value={CONTENT_OPTIONS.find((kind) => KIND_BY_OPTION[kind] === filter.content) ?? "all"}
          options={CONTENT_OPTIONS}
          onChange={(kind) => {
            setFilter({ content: KIND_BY_OPTION[kind], pinned: filter.pinned });
          }}
        />
        <label className="flex items-center gap-2 text-small max-tablet:min-h-11">
          <input
            type="checkbox"
            checked={filter.pinned === true}
            onChange={(event) => {
              setFilter({ content: filter.content, pinned: event.target.checked ? true : undefined });
            }}
          />
          pinned only
        </label>
      </div>
      <AsyncBoundary>
        <TeamCheckpointList
          team={team}
          filter={filter}
          onClear={() => {
            setFilter({});
          }}
          onFork={fork}
          empty={
            <EmptyState title="No checkpoints yet.">
              <p>
                They appear here while{" "}
                <Link to="/$team/runs" params={{ team }} className="text-accent underline">
                  runs
                </Link>{" "}
                train: states to resume from and, at the end, weights.
              </p>
            </EmptyState>
          }
        />
      </AsyncBoundary>
    </>
  );
}
