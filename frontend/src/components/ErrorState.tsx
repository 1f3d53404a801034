import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";

interface Props {
  error: unknown;
  onRetry: () => void;
  /** With a heading of its own, where it stands for a whole page. */
  titled?: boolean;
}

/** In the place of a list or page that could not be had. */
export function ErrorState({ error, onRetry, titled = false }: Props) {
  return (
    <div className="flex max-w-xl flex-col items-start gap-4">
      {titled && <h1 className="text-title font-semibold">This page could not be loaded</h1>}
      <ErrorNote error={error} />
      <Button onClick={onRetry}>Try again</Button>
    </div>
  );
}
