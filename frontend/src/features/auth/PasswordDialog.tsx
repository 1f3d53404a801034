import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useId, useState, type SubmitEvent } from "react";
import { ApiError } from "@/api/errors";
import { Button } from "@/components/Button";
import { Dialog } from "@/components/Dialog";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { PASSWORD_HELP, passwordMistake } from "@/features/auth/passwordRule";
import { changePassword, sessionsQuery } from "@/features/auth/queries";

interface Props {
  email: string;
  onChanged: () => void;
  onClose: () => void;
}

const FIELDS = [
  { name: "current", label: "Current password", autoComplete: "current-password", help: undefined, apiField: "current_password" },
  { name: "password", label: "New password", autoComplete: "new-password", help: PASSWORD_HELP, apiField: "password" },
  { name: "repeated", label: "New password again", autoComplete: "new-password", help: undefined, apiField: undefined },
] as const;

type Passwords = Record<(typeof FIELDS)[number]["name"], string>;

/** The form for a new password. The current one is required, so that nobody else at this browser can set one. */
export function PasswordDialog({ email, onChanged, onClose }: Props) {
  const [passwords, setPasswords] = useState<Passwords>({ current: "", password: "", repeated: "" });
  const [wasSubmitted, setSubmitted] = useState(false);
  const formId = useId();
  const client = useQueryClient();
  const change = useMutation({
    mutationFn: () => changePassword({ current_password: passwords.current, password: passwords.password }),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: sessionsQuery.queryKey });
      onChanged();
    },
  });
  const mistakes = findMistakes(passwords);
  const refused = change.error instanceof ApiError ? change.error.problems : [];

  function submit(event: SubmitEvent<HTMLFormElement>): void {
    event.preventDefault();
    setSubmitted(true);
    const [first] = Object.keys(mistakes);
    if (first === undefined) change.mutate();
    else event.currentTarget.querySelector<HTMLInputElement>(`[name=${first}]`)?.focus();
  }

  return (
    <Dialog
      title="Change password"
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" form={formId} variant="primary" disabled={change.isPending}>
            Change password
          </Button>
        </>
      }
    >
      <p>You stay signed in here and are signed out in all other browsers. Your API keys stay valid.</p>
      <form id={formId} onSubmit={submit} noValidate className="flex flex-col gap-4 text-text">
        {/* Password managers store the new password under this name. */}
        <input type="email" autoComplete="username" value={email} readOnly hidden />
        {FIELDS.map(({ name, label, autoComplete, help, apiField }) => (
          <Field
            key={name}
            label={label}
            help={help}
            error={(wasSubmitted ? mistakes[name] : undefined) ?? refused.find(({ field }) => field === apiField)?.message}
          >
            {(control) => (
              <TextInput
                {...control}
                type="password"
                name={name}
                autoComplete={autoComplete}
                required
                value={passwords[name]}
                onChange={(event) => {
                  if (change.isError) change.reset();
                  setPasswords({ ...passwords, [name]: event.target.value });
                }}
              />
            )}
          </Field>
        ))}
      </form>
      {change.error !== null && refused.length === 0 && <ErrorNote error={change.error} />}
    </Dialog>
  );
}

function findMistakes({ current, password, repeated }: Passwords): Partial<Passwords> {
  const mistake = passwordMistake(password);
  return {
    ...(current === "" ? { current: "Enter your current password." } : {}),
    ...(mistake === undefined ? {} : { password: mistake }),
    ...(repeated === password ? {} : { repeated: "This differs from the new password. Type it again." }),
  };
}
