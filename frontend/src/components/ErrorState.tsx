import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";

/** In the place of a list or page that could not be had. */
export function ErrorState({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  return (
    <div className="flex max-w-xl flex-col items-start gap-4">
      <ErrorNote error={error} />
      <Button onClick={onRetry}>Try again</Button>
    </div>
  );
}
