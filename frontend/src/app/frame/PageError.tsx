import type { ErrorComponentProps } from "@tanstack/react-router";
import { useRetry } from "@/app/frame/useRetry";
import { ErrorState } from "@/components/ErrorState";

/** Replaces a page that could not be loaded. Retries once the connection is back. */
export function PageError({ error }: ErrorComponentProps) {
  return <ErrorState titled error={error} onRetry={useRetry()} />;
}
