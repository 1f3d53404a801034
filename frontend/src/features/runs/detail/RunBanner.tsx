import type { ReactNode } from "react";
import type { Run } from "@/api/types";
import { BannerLinks } from "@/features/runs/detail/BannerLinks";
import { bannerOf } from "@/features/runs/detail/runBannerContent";
import { useNow } from "@/lib/hooks/useNow";

interface Props {
  team: string;
  run: Run;
  /** Only site admins can see nodes. */
  canSeeNodes: boolean;
  /** The step of the newest checkpoint that a fork can continue from. */
  newestState: number | undefined;
  /** When a waiting run is expected to start. */
  expectedStart?: ReactNode;
}

const EDGE_CLASSES = { bad: "border-l-bad", warn: "border-l-warn", plain: "border-l-control" };

/** Explains a run's state and suggests what to do, if its metrics do not make that obvious. */
export function RunBanner({ team, run, canSeeNodes, newestState, expectedStart }: Props) {
  const now = useNow();
  const banner = bannerOf(run, now);
  if (banner === null) return null;
  return (
    <section aria-label="What happened" className={`panel mb-4 flex flex-wrap gap-x-4 gap-y-1 border-l-4 px-4 py-2 ${EDGE_CLASSES[banner.tone]}`}>
      <p className="min-w-0 break-words">
        <span className="inline-block first-letter:uppercase">{withPeriod(banner.message)}</span>{" "}
        <span className="text-soft">
          {banner.next} {expectedStart}
        </span>
      </p>
      {banner.links.length > 0 && (
        <p className="flex flex-wrap gap-x-4">
          <BannerLinks team={team} run={run} links={banner.links} canSeeNodes={canSeeNodes} newestState={newestState} />
        </p>
      )}
    </section>
  );
}

function withPeriod(words: string): string {
  return /[.!?]$/.test(words) ? words : `${words}.`;
}
