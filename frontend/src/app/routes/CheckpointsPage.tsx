import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import type { Checkpoint } from "@/api/types";
import { Boundary } from "@/components/Boundary";
import { EmptyState } from "@/components/EmptyState";
import { Segmented } from "@/components/Segmented";
import { TitleRow } from "@/components/TitleRow";
import type { CheckpointFilter } from "@/features/checkpoints/queries";
import { RetentionButton } from "@/features/checkpoints/RetentionButton";
import { TeamCheckpoints } from "@/features/checkpoints/TeamCheckpoints";

const KINDS = ["all", "states", "weights"] as const;
const KIND_OF = { all: undefined, states: "state", weights: "export" } as const;

/** What the team's runs have saved. */
export function CheckpointsPage() {
  const { team } = useParams({ from: "/$team" });
  const filter = useSearch({ from: "/$team/checkpoints" });
  const navigate = useNavigate();
  const choose = (next: CheckpointFilter) => void navigate({ to: ".", search: next, replace: true, resetScroll: false });
  const fork = ({ run, id }: Checkpoint) =>
    void navigate({ to: "/$team/runs/new", params: { team }, search: { fork: run, checkpoint: id } });
  return (
    <>
      <TitleRow title="Checkpoints" actions={<RetentionButton team={team} runs={null} />} />
      <div className="mb-4 flex flex-wrap items-center gap-4">
        <Segmented
          label="Content"
          value={KINDS.find((kind) => KIND_OF[kind] === filter.content) ?? "all"}
          options={KINDS}
          onChange={(kind) => {
            choose({ content: KIND_OF[kind], pinned: filter.pinned });
          }}
        />
        <label className="flex items-center gap-2 text-small max-tablet:min-h-11">
          <input
            type="checkbox"
            checked={filter.pinned === true}
            onChange={(event) => {
              choose({ content: filter.content, pinned: event.target.checked ? true : undefined });
            }}
          />
          pinned only
        </label>
      </div>
      <Boundary>
        <TeamCheckpoints
          team={team}
          filter={filter}
          onClear={() => {
            choose({});
          }}
          onFork={fork}
          empty={
            <EmptyState title="No checkpoints yet.">
              <p>
                They appear here while{" "}
                <Link to="/$team/runs" params={{ team }} className="text-accent underline">
                  runs
                </Link>{" "}
                train: states to go on from, and at the end the weights.
              </p>
            </EmptyState>
          }
        />
      </Boundary>
    </>
  );
}
