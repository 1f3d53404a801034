import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { ConnectionError } from "@/api/errors";
import { ServerUnreachable } from "@/app/frame/ServerUnreachable";
import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { ErrorNote } from "@/components/ErrorNote";
import type { LinkInfo } from "@/api/types";
import { LinkForm } from "@/features/auth/LinkForm";
import { linkQuery, meQuery } from "@/features/auth/queries";

export function LinkPage() {
  const { token } = useParams({ from: "/link/$token" });
  const { data: link, error, refetch } = useQuery(linkQuery(token));
  const client = useQueryClient();
  const navigate = useNavigate();
  if (error instanceof ConnectionError) return <ServerUnreachable onRetry={() => void refetch()} />;
  if (error !== null) {
    return (
      <SignedOutFrame title="This link is not valid">
        <ErrorNote error={error} />
        <p className="mt-4">
          <Link to="/sign-in" className="text-accent underline underline-offset-2">
            Sign in with your password
          </Link>
        </p>
      </SignedOutFrame>
    );
  }
  if (link === undefined) return <SignedOutFrame title="One moment">Checking the link.</SignedOutFrame>;
  return (
    <SignedOutFrame title={titleOf(link)} note={descriptionOf(link)}>
      <LinkForm
        token={token}
        link={link}
        onSignedIn={(me) => {
          client.clear();
          client.setQueryData(meQuery.queryKey, me);
          void navigate({ to: "/", replace: true });
        }}
      />
      {link.purpose === "invitation" && link.needs_account && (
        <p className="mt-4 text-small text-soft">
          Do you have an account with this address?{" "}
          <Link to="/sign-in" search={{ next: `/link/${token}` }} className="text-accent underline underline-offset-2">
            Sign in
          </Link>{" "}
          to join with it.
        </p>
      )}
    </SignedOutFrame>
  );
}

function titleOf({ purpose, team }: LinkInfo): string {
  if (purpose === "first_owner") return "Set up Trainwright";
  if (purpose === "invitation") return `Join ${team ?? "the team"}`;
  return "Sign in";
}

function descriptionOf({ purpose, email }: LinkInfo): string {
  if (purpose === "first_owner") return "You become the first owner and site admin. This link works once.";
  if (purpose === "invitation") return "You were invited. This link works once.";
  return `This link signs you in${email ? ` as ${email}` : ""}. It works once.`;
}
