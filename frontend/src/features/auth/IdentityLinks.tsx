import { useMutation, useQuery, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { Time } from "@/components/Time";
import { identitiesQuery, signInProviderQuery, startIdentityLink, unlinkIdentity } from "@/features/auth/queries";

/** The person's identities at the identity provider: they sign in to this account. Nothing without a provider. */
export function IdentityLinks() {
  const { data: identities } = useSuspenseQuery(identitiesQuery);
  const { data: provider } = useQuery(signInProviderQuery);
  const client = useQueryClient();
  const unlink = useMutation({
    mutationFn: unlinkIdentity,
    onSettled: () => client.invalidateQueries({ queryKey: identitiesQuery.queryKey }),
  });
  return (
    <div className="flex flex-col gap-3">
      {identities.length > 0 && (
        <ul aria-label="Linked identities" className="flex flex-col gap-2">
          {identities.map(({ id, issuer, email, subject, last_used }) => (
            <li key={id} className="flex flex-wrap items-baseline justify-between gap-x-4">
              <span className="min-w-0 break-all">
                You sign in as {email === "" ? subject : email} at <span title={issuer}>{(identities.length === 1 ? provider?.name : null) ?? issuer}</span>
                <span className="text-soft">
                  , last <Time at={last_used} />
                </span>
              </span>
              <button
                type="button"
                disabled={unlink.isPending}
                className="text-bad hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                onClick={() => {
                  unlink.mutate(id);
                }}
              >
                Unlink<span className="sr-only"> {issuer}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
      {unlink.error !== null && <ErrorNote error={unlink.error} />}
      {identities.length === 0 && provider?.name != null && <LinkForm provider={provider.name} />}
    </div>
  );
}

/** Requires the password, so that nobody else at this browser can add their own identity. */
function LinkForm({ provider }: { provider: string }) {
  const [password, setPassword] = useState("");
  const start = useMutation({
    mutationFn: () => startIdentityLink({ current_password: password, next: window.location.pathname }),
    onSuccess: ({ url }) => {
      window.location.assign(url);
    },
  });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    start.mutate();
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-2">
      <p className="text-soft">Link your identity at {provider} to sign in with it.</p>
      <div className="flex flex-wrap items-start gap-2">
        <Field label="Your password" hidesLabel className="min-w-40 flex-1">
          {(control) => (
            <TextInput
              {...control}
              placeholder="Your password"
              type="password"
              autoComplete="current-password"
              required
              value={password}
              onChange={(event) => {
                setPassword(event.target.value);
              }}
            />
          )}
        </Field>
        <Button type="submit" disabled={start.isPending || start.isSuccess}>
          Link {provider}
        </Button>
      </div>
      {start.error !== null && <ErrorNote error={start.error} />}
    </form>
  );
}
