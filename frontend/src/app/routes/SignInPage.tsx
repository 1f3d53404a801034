import { useQueryClient } from "@tanstack/react-query";
import { useRouter, useSearch } from "@tanstack/react-router";
import { SignedOutFrame } from "@/app/SignedOutFrame";
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
          router.history.push(inside(next));
        }}
      />
      <p className="mt-4 text-small text-soft">
        No account yet? The terminal that started the server shows a link for the first owner.
      </p>
      <p className="mt-2 text-small text-soft">
        You run the server yourself? <code className="font-mono">trainwright-server link sign-in E-MAIL</code> on its machine prints a
        link that signs you in; add <code className="font-mono">--data FOLDER</code> if you started it with one.
      </p>
    </SignedOutFrame>
  );
}

/** Only addresses of this site: a link to the sign-in page must not lead elsewhere afterwards. */
function inside(next: string | undefined): string {
  return next !== undefined && /^\/(?![/\\])/.test(next) ? next : "/";
}
