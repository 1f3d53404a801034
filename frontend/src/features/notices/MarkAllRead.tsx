import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { markRead, noticesQuery } from "@/features/notices/noticeQueries";

/** Marks all of the person's notices as read; nothing while there are none. */
export function MarkAllRead() {
  const { data } = useQuery(noticesQuery);
  const client = useQueryClient();
  const { mutate, isPending, error } = useMutation({
    mutationFn: () => markRead(null),
    onSettled: () => client.invalidateQueries({ queryKey: ["me", "notices"] }),
  });
  if (data === undefined || data.items.length === 0) return null;
  return (
    <>
      {error !== null && <ErrorNote error={error} />}
      <Button
        disabled={data.unread === 0 || isPending}
        onClick={() => {
          mutate();
        }}
      >
        Mark all as read
      </Button>
    </>
  );
}
