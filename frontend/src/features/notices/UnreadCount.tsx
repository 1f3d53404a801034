import { useQuery } from "@tanstack/react-query";
import { unreadQuery } from "@/features/notices/noticeQueries";

/** The number of unread notices; nothing if there are none. */
export function UnreadCount() {
  const { data: unread = 0 } = useQuery(unreadQuery);
  if (unread === 0) return null;
  return (
    <span className="rounded-full bg-accent px-1.5 text-small leading-5 text-on-accent tabular-nums">
      {unread}
      <span className="sr-only"> unread</span>
    </span>
  );
}
