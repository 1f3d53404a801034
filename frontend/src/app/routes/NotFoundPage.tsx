import { Link } from "@tanstack/react-router";
import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { PAGE_NOT_FOUND } from "@/components/NotFoundNote";

/** Shown for unknown addresses outside any team. The visitor may be signed out. */
export function NotFoundPage() {
  return (
    <SignedOutFrame title={PAGE_NOT_FOUND} note="The address may be wrong, for example because part of a link was cut off.">
      <Link to="/" className="text-accent underline underline-offset-2">
        Go to the start page
      </Link>
    </SignedOutFrame>
  );
}
