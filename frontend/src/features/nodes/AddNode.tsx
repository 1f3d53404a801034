import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { TextInput } from "@/components/TextInput";
import { Time } from "@/components/Time";
import { createJoinToken } from "@/features/nodes/queries";

/** Makes a join token for a machine and shows, once, what to run there. */
export function AddNode() {
  const [name, setName] = useState("");
  const { mutate, data, isPending, error } = useMutation({
    mutationFn: () => createJoinToken(name),
    onSuccess: () => {
      setName("");
    },
  });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate();
  }

  return (
    <div className="flex flex-col gap-3">
      <form onSubmit={submit} className="flex max-w-md gap-2">
        <TextInput
          aria-label="Name of the new node"
          placeholder="Name, such as gpu-07"
          required
          pattern="[a-z0-9][a-z0-9\-]{0,62}"
          title="Small letters, digits and -, at most 63; no - at the beginning"
          value={name}
          onChange={(event) => {
            setName(event.target.value);
          }}
        />
        <Button type="submit" disabled={isPending}>
          Create join token
        </Button>
      </form>
      {error !== null && <ErrorNote error={error} />}
      {data !== undefined && (
        <div role="status" className="panel px-4 py-3">
          <p className="mb-1">
            Run this on <span className="font-medium">{data.name}</span>, then start its agent. The token in it works once, until <Time at={data.expires} />, and
            is never shown again.
          </p>
          <Copyable text={joinCommand(data.name, data.token)} />
        </div>
      )}
    </div>
  );
}

function joinCommand(name: string, token: string): string {
  return `trainwright-agent join --api ${window.location.origin} --name ${name} --token ${token} --data /var/lib/trainwright-agent`;
}
