import { Link } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { logFileOf, logLabel, type BannerLink } from "@/features/runs/detail/runBannerContent";
import { count } from "@/lib/format";
import { useCanEdit } from "@/lib/permissions";

interface Props {
  team: string;
  run: Run;
  links: readonly BannerLink[];
  /** Only site admins can see nodes. */
  canSeeNodes: boolean;
  /** The step of the newest checkpoint that a fork can continue from; undefined if there is none. */
  newestState?: number | undefined;
}

const LINK_CLASS = "text-accent underline-offset-2 hover:underline max-tablet:leading-10";

/** What to do about a run, as far as this person may. */
export function BannerLinks({ team, run, links, canSeeNodes, newestState }: Props) {
  const canEdit = useCanEdit();
  const hasStopped = run.state === "failed" || run.state === "cancelled";
  return (
    <>
      {canEdit && hasStopped && newestState !== undefined && (
        <Link to="/$team/runs/new" params={{ team }} search={{ fork: run.id }} className={`${LINK_CLASS} font-medium`}>
          Continue from step {count(newestState)}
        </Link>
      )}
      {links
        .filter((link) => (link === "like" || link === "fork" ? canEdit : link !== "nodes" || canSeeNodes))
        .filter((link) => link !== "checkpoints" || run.state === "succeeded" || newestState !== undefined)
        .filter((link) => link !== "fork" || newestState !== undefined)
        .map((link) => (
          <BannerAction key={link} link={link} team={team} run={run} />
        ))}
    </>
  );
}

function BannerAction({ link, team, run }: { link: BannerLink; team: string; run: Run }) {
  switch (link) {
    case "logs":
      return <LogLink team={team} run={run} />;
    case "checkpoints":
      return (
        <Link to="/$team/runs/$runId/$tab" params={{ team, runId: run.id, tab: link }} className={LINK_CLASS}>
          View checkpoints
        </Link>
      );
    case "dataset":
      return (
        <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: run.spec.data.dataset }} className={LINK_CLASS}>
          View dataset
        </Link>
      );
    case "nodes":
      return (
        <Link to="/$team/nodes" params={{ team }} className={LINK_CLASS}>
          View nodes
        </Link>
      );
    case "queue":
      return (
        <Link to="/$team/queue" params={{ team }} className={LINK_CLASS}>
          View queue
        </Link>
      );
    default:
      return (
        <Link to="/$team/runs/new" params={{ team }} search={{ [link]: run.id }} className={LINK_CLASS}>
          {link === "like" ? "Clone run" : "Fork run"}
        </Link>
      );
  }
}

/** A link to the log of what ended the run, opened at that log where the sentence names it. */
function LogLink({ team, run }: { team: string; run: Run }) {
  const file = logFileOf(run);
  return (
    <Link
      to="/$team/runs/$runId/$tab"
      params={{ team, runId: run.id, tab: "logs" }}
      search={file === undefined ? {} : { attempt: run.attempt, file }}
      className={LINK_CLASS}
    >
      {logLabel(file)}
    </Link>
  );
}
