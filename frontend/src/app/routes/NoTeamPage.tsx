import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useRouteContext } from "@tanstack/react-router";
import { SignedOutFrame } from "@/app/frame/SignedOutFrame";
import { Button } from "@/components/Button";
import { signOut } from "@/features/auth/queries";

/** For a person who is not in a team, or no longer in one. */
export function NoTeamPage() {
  const { me } = useRouteContext({ from: "/" });
  const client = useQueryClient();
  const navigate = useNavigate();
  const leave = useMutation({
    mutationFn: signOut,
    onSettled: async () => {
      await navigate({ to: "/sign-in" });
      client.clear();
    },
  });
  return (
    <SignedOutFrame title="You are not in a team" note={`You are signed in as ${me.email}.`}>
      <p className="mb-4 text-soft">Ask an owner of a team to invite this address. Open the link that they send you in this browser.</p>
      <Button
        disabled={leave.isPending}
        onClick={() => {
          leave.mutate();
        }}
      >
        Sign out
      </Button>
    </SignedOutFrame>
  );
}
