import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Button } from "@/components/Button";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { Time } from "@/components/Time";
import { markRead, noticesQuery } from "@/features/notices/noticeQueries";

/** The person's notices, newest first. Following the link of one marks it as read. */
export function NoticeList() {
  const { data } = useSuspenseQuery(noticesQuery);
  const client = useQueryClient();
  const read = useMutation({
    mutationFn: markRead,
    onSettled: () => client.invalidateQueries({ queryKey: ["me", "notices"] }),
  });
  if (data.items.length === 0) {
    return <EmptyState title="No notices yet">You are told here when your runs end, fail or are paused at a limit.</EmptyState>;
  }
  return (
    <div className="flex flex-col items-start gap-3">
      <Button
        disabled={data.unread === 0 || read.isPending}
        onClick={() => {
          read.mutate(null);
        }}
      >
        Mark all as read
      </Button>
      {read.error !== null && <ErrorNote error={read.error} />}
      <ul aria-label="Notices" className="panel w-full divide-y">
        {data.items.map(({ id, sentence, path, team, time, read: wasRead }) => (
          <li key={id} className="flex items-baseline gap-3 px-4 py-2">
            <span className="w-10 shrink-0 text-small text-accent">{wasRead == null ? "New" : ""}</span>
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
              <span className="block text-small text-soft">
                {team == null ? "" : `${team} · `}
                <Time at={time} />
              </span>
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}
