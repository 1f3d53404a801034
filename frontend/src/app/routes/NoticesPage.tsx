import { Link, useParams, useRouteContext } from "@tanstack/react-router";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { TitleRow } from "@/components/TitleRow";
import { MarkAllRead } from "@/features/notices/MarkAllRead";
import { NoticeList } from "@/features/notices/NoticeList";

/** What happened to the person's runs, limits and nodes, in all their teams. */
export function NoticesPage() {
  const { team } = useParams({ from: "/$team" });
  const { teams } = useRouteContext({ from: "/$team", select: ({ me }) => me });
  return (
    <>
      <TitleRow title="Notices" actions={<MarkAllRead />} />
      <div className="flex max-w-4xl flex-col gap-3">
        <AsyncBoundary>
          <NoticeList teams={teams} />
        </AsyncBoundary>
        <p className="text-small text-soft">
          The newest 200 are kept.{" "}
          <Link to="/$team/settings/$page" params={{ team, page: "notices" }} className="text-accent underline underline-offset-2">
            Choose your notices
          </Link>
        </p>
      </div>
    </>
  );
}
