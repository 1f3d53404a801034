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
  const [account, setAccount] = useState<Account>({ name: "", email: link.email ?? "", password: "", team: "" });
  const [tried, setTried] = useState(false);
  const { mutate, isPending, error } = useMutation({ mutationFn: openLink, onSuccess: onSignedIn });
  const firstOwner = link.purpose === "first_owner";

  const wrong = link.needs_account ? wrongIn(account, firstOwner) : {};

  function submit(event: SubmitEvent<HTMLFormElement>): void {
    event.preventDefault();
    setTried(true);
    const [first] = Object.keys(wrong);
    if (first !== undefined) {
      event.currentTarget.querySelector<HTMLInputElement>(`[name=${first}]`)?.focus();
      return;
    }
    mutate(link.needs_account ? { token, ...filled(account) } : { token });
  }

  function input(field: keyof Account) {
    return {
      name: field,
      value: account[field],
      onChange: (event: { target: { value: string } }) => {
        setAccount({ ...account, [field]: event.target.value });
      },
    };
  }

  function problem(field: keyof Account): string | undefined {
    if (tried && wrong[field] !== undefined) return wrong[field];
    return error instanceof ApiError ? error.problems.find((one) => one.field === field)?.message : undefined;
  }

  return (
    <form onSubmit={submit} noValidate className="flex flex-col gap-4">
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
              help="Short name of your first team, as it stands in addresses: lower-case letters, digits and hyphens, such as my-team."
              error={problem("team")}
            >
              {(control) => <TextInput {...control} {...input("team")} required maxLength={40} />}
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

interface Account {
  name: string;
  email: string;
  password: string;
  team: string;
}

const TEAM = /^[a-z][a-z0-9-]{1,38}[a-z0-9]$/;
const LEAST_PASSWORD = 10;

/** What must change before the account can be asked for, in the order of the fields. */
function wrongIn({ name, email, password, team }: Account, firstOwner: boolean): Partial<Account> {
  return {
    ...(name.trim() === "" ? { name: "Enter your name." } : {}),
    ...(/^[^\s@]+@[^\s@]+$/.test(email) ? {} : { email: "Enter an e-mail address, such as ada@example.org." }),
    ...(password.length < LEAST_PASSWORD ? { password: `Enter at least ${LEAST_PASSWORD} characters.` } : {}),
    ...(firstOwner && !TEAM.test(team) ? { team: TEAM_RULE } : {}),
  };
}

const TEAM_RULE = "Use 3 to 40 lower-case letters, digits and hyphens, a letter first and no hyphen last, such as my-team.";

function filled(account: Account) {
  const { team, ...person } = account;
  return team === "" ? person : { ...person, team };
}
