import { useQuery } from "@tanstack/react-query";
import { unreadQuery } from "@/features/notices/noticeQueries";
import { useIsSettled } from "@/lib/hooks/useIsSettled";

/** The number of unread notices, beside the word or at the corner of the icon above it; nothing if there are none. */
export function UnreadCount() {
  const { data: unread = 0 } = useQuery({ ...unreadQuery, enabled: useIsSettled() });
  if (unread === 0) return null;
  return (
    <span className="rounded-full bg-accent px-1.5 text-small leading-5 text-on-accent tabular-nums max-desk:absolute max-desk:top-0 max-desk:left-1/2 max-desk:ml-1 max-desk:leading-4">
      {unread}
      <span className="sr-only"> unread</span>
    </span>
  );
}
