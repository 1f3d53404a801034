import { useMutation, useQuery } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import type { Me } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { MailLinkButton } from "@/features/auth/MailLinkButton";
import { signIn } from "@/features/auth/queries";
import { healthQuery } from "@/lib/healthQuery";

export function SignInForm({ onSignedIn }: { onSignedIn: (me: Me) => void }) {
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const { mutate, isPending, error } = useMutation({ mutationFn: signIn, onSuccess: onSignedIn });

  const { data: health } = useQuery(healthQuery);

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate({ email, password });
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      <Field label="Email">
        {(control) => (
          <TextInput
            {...control}
            type="email"
            name="email"
            autoComplete="username"
            required
            value={email}
            onChange={(event) => {
              setEmail(event.target.value);
            }}
          />
        )}
      </Field>
      <Field label="Password" help={`Forgot your password, or never set one? ${health?.sends_mail === false ? "Ask the operator for a sign-in link." : "Sign in with a link instead."}`}>
        {(control) => (
          <TextInput
            {...control}
            type="password"
            name="password"
            autoComplete="current-password"
            required
            value={password}
            onChange={(event) => {
              setPassword(event.target.value);
            }}
          />
        )}
      </Field>
      {error !== null && <ErrorNote error={error} />}
      <Button type="submit" variant="primary" disabled={isPending}>
        Sign in
      </Button>
      {health?.sends_mail === true && <MailLinkButton email={email} sent="If this address has an account, a link is on its way." />}
    </form>
  );
}
