import { useQuery } from "@tanstack/react-query";
import type { Run } from "@/api/types";
import { newestState } from "@/features/checkpoints/newestState";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { BannerLinks } from "@/features/runs/detail/BannerLinks";
import { bannerOf } from "@/features/runs/detail/runBannerContent";

interface Props {
  team: string;
  run: Run;
  now: number;
  /** Only site admins can see nodes. */
  canSeeNodes: boolean;
}

/** What to do about a run; a failed one can continue from its newest checkpoint. */
export function HomeRunLinks({ team, run, now, canSeeNodes }: Props) {
  const links = bannerOf(run, now)?.links ?? [];
  const canContinue = run.state === "failed" && links.length > 0;
  const { data: checkpoints } = useQuery({ ...checkpointsQuery(team, run.id, false), enabled: canContinue });
  if (links.length === 0) return null;
  return <BannerLinks team={team} run={run} links={links} canSeeNodes={canSeeNodes} newestState={canContinue ? newestState(checkpoints) : undefined} />;
}
