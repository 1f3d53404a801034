import type { ErrorComponentProps } from "@tanstack/react-router";
import { ConnectionError } from "@/api/errors";
import { ServerUnreachable } from "@/app/frame/ServerUnreachable";
import { useRetry } from "@/app/frame/useRetry";
import { ErrorState } from "@/components/ErrorState";

/** Replaces the frame when the signed-in user cannot be loaded. */
export function FrameError({ error }: ErrorComponentProps) {
  const retry = useRetry();
  if (error instanceof ConnectionError) return <ServerUnreachable onRetry={retry} />;
  return (
    <main className="p-6">
      <ErrorState titled error={error} onRetry={retry} />
    </main>
  );
}
