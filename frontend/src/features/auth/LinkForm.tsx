import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { problemAt } from "@/api/errors";
import type { LinkInfo, Me } from "@/api/types";
import { Button } from "@/components/Button";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { PASSWORD_HELP, passwordMistake } from "@/features/auth/passwordRule";
import { openLink } from "@/features/auth/queries";

interface Props {
  token: string;
  link: LinkInfo;
  onSignedIn: (me: Me) => void;
}

/** The form behind a one-time link: the account to create, a new password, or a single button. */
export function LinkForm({ token, link, onSignedIn }: Props) {
  const [account, setAccount] = useState<Account>({ name: "", email: link.email ?? "", password: "", team: "" });
  const [wasSubmitted, setSubmitted] = useState(false);
  const { mutate, isPending, error } = useMutation({ mutationFn: openLink, onSuccess: onSignedIn });
  const firstOwner = link.purpose === "first_owner";

  const recovers = link.purpose === "sign_in";
  const mustSetPassword = link.needs_password;
  const setsPassword = recovers && (mustSetPassword || account.password !== "");

  const mistakes = link.needs_account ? validateAccount(account, firstOwner) : setsPassword ? validatePassword(account) : {};

  function submit(event: SubmitEvent<HTMLFormElement>): void {
    event.preventDefault();
    setSubmitted(true);
    const [first] = Object.keys(mistakes);
    if (first !== undefined) {
      event.currentTarget.querySelector<HTMLInputElement>(`[name=${first}]`)?.focus();
      return;
    }
    if (link.needs_account) mutate({ token, ...accountFields(account) });
    else mutate(setsPassword ? { token, password: account.password } : { token });
  }

  function input(field: keyof Account) {
    return {
      name: field,
      value: account[field],
      onChange: (event: { target: { value: string } }) => {
        const { value } = event.target;
        setAccount({ ...account, [field]: field === "team" ? shortName(value) : value });
      },
    };
  }

  const hasFieldProblem = (Object.keys(account) as (keyof Account)[]).some((field) => problem(field) !== undefined);

  function problem(field: keyof Account): string | undefined {
    if (wasSubmitted && mistakes[field] !== undefined) return mistakes[field];
    return problemAt(error, field) ?? (field === "team" ? problemAt(error, "slug") : undefined);
  }

  return (
    <form onSubmit={submit} noValidate className="flex flex-col gap-4">
      {link.needs_account && (
        <>
          <Field label="Your name" error={problem("name")}>
            {(control) => <TextInput {...control} {...input("name")} autoComplete="name" required maxLength={80} />}
          </Field>
          <Field label="Email" error={problem("email")}>
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
          <Field label="Password" help={problem("password") === undefined ? PASSWORD_HELP : undefined} error={problem("password")}>
            {(control) => (
              <TextInput {...control} {...input("password")} type="password" autoComplete="new-password" required minLength={10} />
            )}
          </Field>
          {firstOwner && (
            <Field
              label="Team"
              help={
                problem("team") === undefined
                  ? "Short name of your first team, used in page addresses: lowercase letters, digits and hyphens, such as my-team."
                  : undefined
              }
              error={problem("team")}
            >
              {(control) => <TextInput {...control} {...input("team")} required maxLength={40} />}
            </Field>
          )}
        </>
      )}
      {recovers && (
        <Field
          label={mustSetPassword ? "New password" : "New password (optional)"}
          help={`${PASSWORD_HELP} A new password signs out all your other sessions and revokes your API keys. ${
            mustSetPassword
              ? "You need to set one, because the address of this account has not been confirmed."
              : "Leave this empty to keep your current password."
          }`}
          error={problem("password")}
        >
          {(control) => (
            <TextInput
              {...control}
              {...input("password")}
              type="password"
              autoComplete="new-password"
              required={mustSetPassword}
              minLength={10}
            />
          )}
        </Field>
      )}
      {error !== null && !hasFieldProblem && <ErrorNote error={error} />}
      <Button type="submit" variant="primary" disabled={isPending}>
        {link.needs_account ? "Create account" : setsPassword ? "Set password and sign in" : recovers ? "Sign in" : "Join"}
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

const TEAM_PATTERN = /^[a-z][a-z0-9-]{1,38}[a-z0-9]$/;

/** The fields that must change before the account can be created, in their order on the page. */
function validateAccount({ name, email, password, team }: Account, firstOwner: boolean): Partial<Account> {
  return {
    ...(name.trim() === "" ? { name: "Enter your name." } : {}),
    ...(/^[^\s@]+@[^\s@]+$/.test(email) ? {} : { email: "Enter an email address, such as ada@example.org." }),
    ...validatePassword({ password }),
    ...(firstOwner && !TEAM_PATTERN.test(team) ? { team: TEAM_RULE } : {}),
  };
}

/** `My Team` → `my-team` */
function shortName(text: string): string {
  return text.toLowerCase().replace(/[\s_]+/g, "-");
}

function validatePassword({ password }: Pick<Account, "password">): Partial<Account> {
  const mistake = passwordMistake(password);
  return mistake === undefined ? {} : { password: mistake };
}

const TEAM_RULE = "Use 3 to 40 lowercase letters, digits and hyphens, starting with a letter and not ending with a hyphen, such as my-team.";

function accountFields(account: Account) {
  const { team, ...person } = account;
  return team === "" ? person : { ...person, team };
}
