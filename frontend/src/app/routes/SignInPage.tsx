import { useQueryClient } from "@tanstack/react-query";
import { useRouteContext, useRouter, useSearch } from "@tanstack/react-router";
import { safeRedirect } from "@/app/safeRedirect";
import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { ErrorNote } from "@/components/ErrorNote";
import { ProviderButton } from "@/features/auth/ProviderButton";
import { meQuery } from "@/features/auth/queries";
import { SignInForm } from "@/features/auth/SignInForm";

export function SignInPage() {
  const { next } = useSearch({ from: "/sign-in" });
  const { refusal } = useRouteContext({ from: "/sign-in" });
  const client = useQueryClient();
  const router = useRouter();
  return (
    <SignedOutFrame title="Sign in">
      {refusal !== null && (
        <div className="mb-4">
          <ErrorNote error={refusal} />
        </div>
      )}
      <ProviderButton next={safeRedirect(next)} />
      <SignInForm
        onSignedIn={(me) => {
          client.clear();
          client.setQueryData(meQuery.queryKey, me);
          router.history.push(safeRedirect(next));
        }}
      />
      <p className="mt-4 text-small text-soft">
        No account yet? Ask an owner of your team for an invitation. On a new server, the terminal shows a link for the first owner.
      </p>
      <details className="mt-2 text-small text-soft">
        <summary className="w-fit cursor-pointer">Running the server yourself?</summary>
        <p className="mt-1">
          Run{" "}
          <code className="font-mono">
            <span className="whitespace-nowrap">trainwright-server</span> link <span className="whitespace-nowrap">sign-in</span> EMAIL
          </code>{" "}
          on its machine to print a link that signs you in; add <code className="font-mono whitespace-nowrap">--data FOLDER</code> if you started it with one.
        </p>
      </details>
    </SignedOutFrame>
  );
}
