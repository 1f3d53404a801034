import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { CircleCheck, CircleStop, CircleX, Gauge, Pause, ServerOff, type LucideIcon } from "lucide-react";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { ShortId } from "@/components/ShortId";
import { Time } from "@/components/Time";
import { markRead, noticesQuery, type NoticeKind } from "@/features/notices/noticeQueries";

const ICONS: Record<NoticeKind, { Icon: LucideIcon; color: string }> = {
  "run.ended": { Icon: CircleCheck, color: "text-good" },
  "run.failed": { Icon: CircleX, color: "text-bad" },
  "run.paused_by_limit": { Icon: Pause, color: "text-warn" },
  "limit.reached": { Icon: Gauge, color: "text-warn" },
  "node.quarantined": { Icon: ServerOff, color: "text-warn" },
};

interface Props {
  /** The person's teams, for their names. */
  teams: readonly { slug: string; name: string }[];
}

/** The person's notices, newest first. Following the link of one marks it as read, as does its button. */
export function NoticeList({ teams }: Props) {
  const { data } = useSuspenseQuery(noticesQuery);
  const client = useQueryClient();
  const read = useMutation({
    mutationFn: markRead,
    onSettled: () => client.invalidateQueries({ queryKey: ["me", "notices"] }),
  });
  if (data.items.length === 0) {
    return <EmptyState title="No notices yet.">Notices appear here when your runs end, fail or are paused at a limit.</EmptyState>;
  }
  return (
    <div className="flex flex-col gap-3">
      {read.error !== null && <ErrorNote error={read.error} />}
      <ul aria-label="Notices" className="panel divide-y">
        {data.items.map(({ id, kind, sentence, path, team, time, read: wasRead }) => (
          <li key={id} className="flex items-start gap-3 px-4 py-2">
            <NoticeIcon kind={kind} sentence={sentence} />
            <span className="min-w-0 flex-1 break-words">
              <Link
                to={path}
                className={`hover:underline ${wasRead == null ? "font-medium" : ""}`}
                onClick={() => {
                  if (wasRead == null) read.mutate([id]);
                }}
              >
                {sentence}
              </Link>
              <RunId path={path} />
              {wasRead == null && <span className="ml-2 text-small text-accent">New</span>}
              <span className="block text-small text-soft">
                {team == null ? "" : `${teams.find(({ slug }) => slug === team)?.name ?? team} · `}
                <Time at={time} />
              </span>
            </span>
            {wasRead == null && (
              <Button
                variant="quiet"
                aria-label={`Mark as read: ${sentence}`}
                disabled={read.isPending}
                onClick={(event) => {
                  // The button goes away, so the focus stays in its row.
                  event.currentTarget.closest("li")?.querySelector("a")?.focus();
                  read.mutate([id]);
                }}
              >
                Mark as read
              </Button>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

const RUN_PAGE = /\/runs\/(run_[^/]+)/;

/** The short id of the run that a notice is about, because runs may share a name. */
function RunId({ path }: { path: string }) {
  const run = RUN_PAGE.exec(path)?.[1];
  return run !== undefined && <ShortId id={run} />;
}

/** A cancelled run ends too, but is not a success. Its icon has the circle of the other ends, and the square of its state. */
const CANCELLED = / was cancelled( by .*)?\.$/;
const CANCELLED_ICON: (typeof ICONS)[NoticeKind] = { Icon: CircleStop, color: "text-idle" };

function NoticeIcon({ kind, sentence }: { kind: NoticeKind; sentence: string }) {
  const { Icon, color } = kind === "run.ended" && CANCELLED.test(sentence) ? CANCELLED_ICON : ICONS[kind];
  return <Icon aria-hidden size={16} className={`mt-0.5 shrink-0 ${color}`} />;
}
