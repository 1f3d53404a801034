import type { ErrorComponentProps } from "@tanstack/react-router";
import { PageError } from "@/app/frame/PageError";

/** Replaces the frame when the signed-in user cannot be loaded. */
export function FrameError(props: ErrorComponentProps) {
  return (
    <main className="p-6">
      <PageError {...props} />
    </main>
  );
}
