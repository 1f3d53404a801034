import { useQueryClient } from "@tanstack/react-query";
import { useRouter, useSearch } from "@tanstack/react-router";
import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { meQuery } from "@/features/auth/queries";
import { SignInForm } from "@/features/auth/SignInForm";

export function SignInPage() {
  const { next } = useSearch({ from: "/sign-in" });
  const client = useQueryClient();
  const router = useRouter();
  return (
    <SignedOutFrame title="Sign in">
      <SignInForm
        onSignedIn={(me) => {
          client.clear();
          client.setQueryData(meQuery.queryKey, me);
          router.history.push(safeRedirect(next));
        }}
      />
      <p className="mt-4 text-small text-soft">
        No account yet? The terminal that started the server shows a link for the first owner.
      </p>
      <p className="mt-2 text-small text-soft">
        Running the server yourself? Run <code className="font-mono">trainwright-server link sign-in EMAIL</code> on its machine to print a
        link that signs you in; add <code className="font-mono">--data FOLDER</code> if you started it with one.
      </p>
    </SignedOutFrame>
  );
}

/** Accepts only addresses of this site, so that a sign-in link cannot redirect elsewhere. */
function safeRedirect(next: string | undefined): string {
  return next !== undefined && /^\/(?![/\\])/.test(next) ? next : "/";
}
