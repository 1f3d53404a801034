import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { TextInput } from "@/components/TextInput";
import { createKey, keysQuery } from "@/features/auth/queries";

/** Creates an API key and shows it once. */
export function NewKeyForm() {
  const [name, setName] = useState("");
  const client = useQueryClient();
  const { mutate, data, isPending, error } = useMutation({
    mutationFn: createKey,
    onSuccess: async () => {
      setName("");
      await client.invalidateQueries({ queryKey: keysQuery.queryKey });
    },
  });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate(name);
  }

  return (
    <div className="flex flex-col gap-3">
      <form onSubmit={submit} className="flex max-w-md gap-2">
        <TextInput
          aria-label="Name of the new key"
          placeholder="Name, such as laptop"
          required
          maxLength={80}
          value={name}
          onChange={(event) => {
            setName(event.target.value);
          }}
        />
        <Button type="submit" disabled={isPending}>
          Create key
        </Button>
      </form>
      {error !== null && <ErrorNote error={error} />}
      {data !== undefined && (
        <div role="status" className="panel px-4 py-3">
          <p className="mb-1">
            This is the key <span className="font-medium">{data.name}</span>. Copy it now; it will not be shown again.
          </p>
          <Copyable text={data.secret} />
        </div>
      )}
    </div>
  );
}
