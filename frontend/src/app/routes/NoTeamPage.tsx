import { useRouteContext } from "@tanstack/react-router";
import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { useSignOut } from "@/app/useSignOut";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";

/** For a person who is not in a team, or no longer in one. */
export function NoTeamPage() {
  const { me } = useRouteContext({ from: "/" });
  const signOut = useSignOut();
  return (
    <SignedOutFrame title="You are not in a team" note={`You are signed in as ${me.email}.`}>
      <p className="mb-4 text-soft">Ask an owner of a team to invite this address. Open the link that they send you in this browser.</p>
      <Button
        disabled={signOut.isPending}
        onClick={() => {
          signOut.mutate();
        }}
      >
        Sign out
      </Button>
      {signOut.error !== null && (
        <div className="mt-4">
          <ErrorNote error={signOut.error} />
        </div>
      )}
    </SignedOutFrame>
  );
}
