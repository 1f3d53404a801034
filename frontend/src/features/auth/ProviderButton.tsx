import { useMutation, useQuery } from "@tanstack/react-query";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { signInProviderQuery, startProviderSignIn } from "@/features/auth/queries";

/** Leads to the identity provider, if the installation has one. */
export function ProviderButton({ next }: { next: string }) {
  const { data: provider } = useQuery(signInProviderQuery);
  const start = useMutation({
    mutationFn: startProviderSignIn,
    onSuccess: ({ url }) => {
      window.location.assign(url);
    },
  });
  if (provider?.name == null) return null;
  return (
    <div className="mb-4 flex flex-col gap-3">
      <Button
        variant="primary"
        disabled={start.isPending || start.isSuccess}
        onClick={() => {
          start.mutate(next);
        }}
      >
        Sign in with {provider.name}
      </Button>
      {start.error !== null && <ErrorNote error={start.error} />}
      <p className="text-center text-small text-soft">or with a password</p>
    </div>
  );
}
