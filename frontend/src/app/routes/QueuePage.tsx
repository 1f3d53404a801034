import { useParams, useRouteContext } from "@tanstack/react-router";
import { AsyncBoundary } from "@/components/AsyncBoundary";
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
      <AsyncBoundary>
        <QueueTable team={team} memberRole={role} />
      </AsyncBoundary>
      <p className="mt-3 max-w-3xl text-small text-soft">
        Runs with a higher priority start first, then runs that were submitted earlier. Between teams, runs within a guaranteed share go
        first. After that, the team that has used the least in recent weeks goes next. A short run may start ahead of its turn if it ends
        before an earlier run can start.
      </p>
    </>
  );
}
