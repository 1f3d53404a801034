import { Link } from "@tanstack/react-router";
import type { Run } from "@/api/types";
import { useMayEdit } from "@/lib/mayEdit";
import { bannerOf, type BannerLink } from "@/lib/runBanner";
import { useNow } from "@/lib/useNow";

interface Props {
  team: string;
  run: Run;
  /** Nodes are shown to site admins. */
  seesNodes: boolean;
}

const EDGES = { bad: "border-l-bad", warn: "border-l-warn", plain: "border-l-control" };
const LINK = "text-accent underline-offset-2 hover:underline";

/** Why the run is where it is, and what to do next, when that is not plain from its numbers. */
export function RunBanner({ team, run, seesNodes }: Props) {
  const now = useNow();
  const mayEdit = useMayEdit();
  const banner = bannerOf(run, now);
  if (banner === null) return null;
  const links = banner.links.filter((link) => (link === "like" || link === "fork" ? mayEdit : link !== "nodes" || seesNodes));
  return (
    <section aria-label="What happened" className={`panel mb-4 flex flex-wrap gap-x-4 gap-y-1 border-l-4 px-4 py-2 ${EDGES[banner.tone]}`}>
      <p className="min-w-0 break-words">
        <span className="inline-block first-letter:uppercase">{closed(banner.words)}</span>{" "}
        <span className="text-soft">{banner.next}</span>
      </p>
      {links.length > 0 && (
        <p className="flex flex-wrap gap-x-4">
          {links.map((link) => (
            <BannerLinkTo key={link} link={link} team={team} run={run} />
          ))}
        </p>
      )}
    </section>
  );
}

function BannerLinkTo({ link, team, run }: { link: BannerLink; team: string; run: Run }) {
  switch (link) {
    case "logs":
    case "checkpoints":
      return (
        <Link to="/$team/runs/$runId/$tab" params={{ team, runId: run.id, tab: link }} className={LINK}>
          {link === "logs" ? "Read the logs" : "See its checkpoints"}
        </Link>
      );
    case "dataset":
      return (
        <Link to="/$team/datasets/$datasetId" params={{ team, datasetId: run.spec.data.dataset }} className={LINK}>
          See its dataset
        </Link>
      );
    case "nodes":
      return (
        <Link to="/$team/nodes" params={{ team }} className={LINK}>
          See the nodes
        </Link>
      );
    default:
      return (
        <Link to="/$team/runs/new" params={{ team }} search={{ [link]: run.id }} className={LINK}>
          {link === "like" ? "New run like it" : "Fork it"}
        </Link>
      );
  }
}

function closed(words: string): string {
  return /[.!?]$/.test(words) ? words : `${words}.`;
}
