import { useQuery } from "@tanstack/react-query";
import type { Run } from "@/api/types";
import { newestState } from "@/features/checkpoints/newestState";
import { checkpointsQuery } from "@/features/checkpoints/queries";
import { ResumeRun } from "@/features/runs/actions/ResumeRun";
import { BannerLinks } from "@/features/runs/detail/BannerLinks";
import { bannerOf } from "@/features/runs/detail/runBannerContent";
import { useCanEdit } from "@/lib/permissions";

interface Props {
  team: string;
  run: Run;
  now: number;
  /** Only site admins can see nodes. */
  canSeeNodes: boolean;
}

/** What to do about a run: a paused one can be resumed, and a failed one continues from its newest checkpoint. */
export function HomeRunLinks({ team, run, now, canSeeNodes }: Props) {
  const canEdit = useCanEdit();
  const links = bannerOf(run, now)?.links ?? [];
  const canContinue = run.state === "failed" && links.length > 0;
  const { data: checkpoints } = useQuery({ ...checkpointsQuery(team, run.id, false), enabled: canContinue });
  // A run that failed before its first checkpoint has none to show.
  const possible = checkpoints?.length === 0 ? links.filter((link) => link !== "checkpoints") : links;
  // A finished run's line stays short: its page offers the rest.
  const shown = run.state === "succeeded" ? possible.filter((link) => link === "checkpoints") : possible;
  return (
    <>
      {run.state === "paused" && canEdit && <ResumeRun team={team} run={run} />}
      <BannerLinks team={team} run={run} links={shown} canSeeNodes={canSeeNodes} newestState={canContinue ? newestState(checkpoints) : undefined} />
    </>
  );
}
