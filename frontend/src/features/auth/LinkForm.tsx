import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import type { LinkInfo, Me } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { openLink } from "@/features/auth/queries";

interface Props {
  token: string;
  link: LinkInfo;
  onSignedIn: (me: Me) => void;
}

/** What a one-time link asks before it is used: nothing but a click, or the account that it creates. */
export function LinkForm({ token, link, onSignedIn }: Props) {
  const [account, setAccount] = useState({ name: "", email: link.email ?? "", password: "", team: "" });
  const { mutate, isPending, error } = useMutation({ mutationFn: openLink, onSuccess: onSignedIn });
  const firstOwner = link.purpose === "first_owner";

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate(link.needs_account ? { token, ...filled(account) } : { token });
  }

  function input(field: keyof typeof account) {
    return {
      name: field,
      value: account[field],
      onChange: (event: { target: { value: string } }) => {
        setAccount({ ...account, [field]: event.target.value });
      },
    };
  }

  function problem(field: string): string | undefined {
    return error instanceof ApiError ? error.problems.find((one) => one.field === field)?.message : undefined;
  }

  return (
    <form onSubmit={submit} className="flex flex-col gap-4">
      {link.needs_account && (
        <>
          <Field label="Your name" error={problem("name")}>
            {(control) => <TextInput {...control} {...input("name")} autoComplete="name" required maxLength={80} />}
          </Field>
          <Field label="E-mail" error={problem("email")}>
            {(control) => (
              <TextInput
                {...control}
                {...input("email")}
                type="email"
                autoComplete="username"
                required
                readOnly={link.email !== null && link.email !== undefined}
              />
            )}
          </Field>
          <Field label="Password" help="At least 10 characters." error={problem("password")}>
            {(control) => (
              <TextInput {...control} {...input("password")} type="password" autoComplete="new-password" required minLength={10} />
            )}
          </Field>
          {firstOwner && (
            <Field
              label="Team"
              help="Short name of your first team, as it stands in addresses: small letters, digits and hyphens."
              error={problem("team")}
            >
              {(control) => (
                <TextInput
                  {...control}
                  {...input("team")}
                  required
                  pattern="[a-z][a-z0-9\-]{1,38}[a-z0-9]"
                  placeholder="vision-lab"
                />
              )}
            </Field>
          )}
        </>
      )}
      {error !== null && <ErrorNote error={error} />}
      <Button type="submit" look="primary" disabled={isPending}>
        {link.needs_account ? "Create account" : "Sign in"}
      </Button>
    </form>
  );
}

function filled(account: { name: string; email: string; password: string; team: string }) {
  const { team, ...person } = account;
  return team === "" ? person : { ...person, team };
}
