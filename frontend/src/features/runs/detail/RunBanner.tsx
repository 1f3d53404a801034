import { Link } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { useCanEdit } from "@/lib/permissions";
import { bannerOf, type BannerLink } from "@/features/runs/detail/runBannerContent";
import { useNow } from "@/lib/hooks/useNow";

interface Props {
  team: string;
  run: Run;
  /** Only site admins can see nodes. */
  canSeeNodes: boolean;
}

const EDGE_CLASSES = { bad: "border-l-bad", warn: "border-l-warn", plain: "border-l-control" };
const LINK_CLASS = "text-accent underline-offset-2 hover:underline";

/** Explains a run's state and suggests what to do, if its metrics do not make that obvious. */
export function RunBanner({ team, run, canSeeNodes }: Props) {
  const now = useNow();
  const canEdit = useCanEdit();
  const banner = bannerOf(run, now);
  if (banner === null) return null;
  const links = banner.links.filter((link) => (link === "like" || link === "fork" ? canEdit : link !== "nodes" || canSeeNodes));
  return (
    <section aria-label="What happened" className={`panel mb-4 flex flex-wrap gap-x-4 gap-y-1 border-l-4 px-4 py-2 ${EDGE_CLASSES[banner.tone]}`}>
      <p className="min-w-0 break-words">
        <span className="inline-block first-letter:uppercase">{withPeriod(banner.message)}</span>{" "}
        <span className="text-soft">{banner.next}</span>
      </p>
      {links.length > 0 && (
        <p className="flex flex-wrap gap-x-4">
          {links.map((link) => (
            <BannerAction key={link} link={link} team={team} run={run} />
          ))}
        </p>
      )}
    </section>
  );
}

function BannerAction({ link, team, run }: { link: BannerLink; team: string; run: Run }) {
  switch (link) {
    case "logs":
    case "checkpoints":
      return (
        <Link to="/$team/runs/$runId/$tab" params={{ team, runId: run.id, tab: link }} className={LINK_CLASS}>
          {link === "logs" ? "View logs" : "View checkpoints"}
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
    default:
      return (
        <Link to="/$team/runs/new" params={{ team }} search={{ [link]: run.id }} className={LINK_CLASS}>
          {link === "like" ? "Clone run" : "Fork run"}
        </Link>
      );
  }
}

function withPeriod(words: string): string {
  return /[.!?]$/.test(words) ? words : `${words}.`;
}
