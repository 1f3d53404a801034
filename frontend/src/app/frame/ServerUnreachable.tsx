import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { Button } from "@/components/Button";
import { SERVER_UNREACHABLE } from "@/components/ErrorState";

/** The whole page while the server does not respond and nothing was loaded yet. The banner above counts down to the next attempt. */
export function ServerUnreachable({ onRetry }: { onRetry: () => void }) {
  return (
    <SignedOutFrame title={SERVER_UNREACHABLE} note="Runs that have started continue. This page opens by itself once the server responds.">
      <p className="mb-4 text-soft">Check your network. If other sites work, the server may be restarting. Ask its operator if this lasts.</p>
      <Button onClick={onRetry}>Try again</Button>
    </SignedOutFrame>
  );
}
