import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { Time } from "@/components/Time";
import { createJoinToken } from "@/features/nodes/queries";

const AGENT_FOLDER = "/var/lib/trainwright-agent";

/** Creates a join token for a machine and shows once what to run there. */
export function AddNode() {
  const [name, setName] = useState("");
  // A token is shown only once, so it stays visible while others are created.
  const [tokens, setTokens] = useState<Awaited<ReturnType<typeof createJoinToken>>[]>([]);
  const { mutate, isPending, error, reset } = useMutation({
    mutationFn: createJoinToken,
    onSuccess: (token, requestedName) => {
      setTokens((before) => [token, ...before]);
      setName((now) => (now === requestedName ? "" : now));
    },
  });

  const otherError = withoutProblemsAt(error, ["name"]);

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate(name);
  }

  return (
    <div className="flex flex-col gap-3">
      <form onSubmit={submit} className="flex max-w-md items-start gap-2">
        <Field label="Name of the new node" hidesLabel className="flex-1" error={problemAt(error, "name")}>
          {(control) => (
            <TextInput
              {...control}
              placeholder="Name, such as gpu-07"
              required
              pattern="[a-z0-9][a-z0-9\-]{0,62}"
              title="Lowercase letters, digits and hyphens, at most 63 characters, not starting with a hyphen"
              value={name}
              onChange={(event) => {
                setName(event.target.value);
                reset();
              }}
            />
          )}
        </Field>
        <Button type="submit" disabled={isPending}>
          Create join token
        </Button>
      </form>
      {otherError !== null && <ErrorNote error={otherError} />}
      <div role="status" className="flex flex-col gap-3">
        {tokens.map(({ name, expires, token, api, warning }) => (
          <div key={token} className="panel px-4 py-3">
            <p className="mb-1">
              Run these on <span className="font-medium">{name}</span>: the first joins, the second works until it is stopped. The token works once, expires at{" "}
              <Time at={expires} />, and will not be shown again.
            </p>
            <div className="flex flex-col items-start gap-1">
              <Copyable text={joinCommand(name, token, api ?? window.location.origin)} />
              <Copyable text={`trainwright-agent run --data ${AGENT_FOLDER}`} />
            </div>
            {warning && <p className="mt-1 text-warn">{warning}</p>}
          </div>
        ))}
      </div>
    </div>
  );
}

function joinCommand(name: string, token: string, api: string): string {
  return `trainwright-agent join --api ${api} --name ${name} --token ${token} --data ${AGENT_FOLDER}`;
}
