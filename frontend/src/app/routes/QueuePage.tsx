import { useParams, useRouteContext } from "@tanstack/react-router";
import { Boundary } from "@/components/Boundary";
import { TitleRow } from "@/components/TitleRow";
import { NewRunLink } from "@/features/runs/NewRunLink";
import { QueueTable } from "@/features/queue/QueueTable";

/** The team's waiting runs: their order, and what each waits for. */
export function QueuePage() {
  const { team } = useParams({ from: "/$team" });
  const { me } = useRouteContext({ from: "/$team" });
  const role = me.teams.find(({ slug }) => slug === team)?.role ?? "viewer";
  return (
    <>
      <TitleRow title="Queue" actions={<NewRunLink team={team} />} />
      <Boundary>
        <QueueTable team={team} memberRole={role} />
      </Boundary>
      <p className="mt-3 max-w-3xl text-small text-soft">
        Runs of a higher priority start first, then those that were submitted first. Between teams, runs within their team&apos;s
        guaranteed share come first, then those of the teams that used less in the last weeks. A short run may start ahead of its turn
        if it ends before an earlier run can start.
      </p>
    </>
  );
}
