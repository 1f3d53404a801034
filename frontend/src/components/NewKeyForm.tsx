import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import type { ApiKey, CreatedKey, NewKey } from "@/api/types";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { NameField } from "@/components/NameField";
import { Select } from "@/components/Select";

/** All that each scope but `manage` allows, the least first: short enough for the form to fit on one line. */
const SCOPE_LABELS = { read: "view everything", submit: "view, upload data, manage runs" } as const;

const LIFETIMES = [
  { days: "30", label: "expires in 30 days" },
  { days: "90", label: "expires in 90 days" },
  { days: "365", label: "expires in a year" },
  { days: "", label: "does not expire" },
] as const;

interface Props {
  create: (key: NewKey) => Promise<CreatedKey>;
  /** The query of the list in which the key appears. */
  listKey: readonly unknown[];
  /** What a key with the scope `manage` may do. */
  manages: string;
}

/** Creates an API key and shows it once. */
export function NewKeyForm({ create, listKey, manages }: Props) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<ApiKey["scope"]>("submit");
  const [days, setDays] = useState<string>(LIFETIMES[1].days);
  const client = useQueryClient();
  // A key is shown only once, so it stays visible until the next one is created, also if that is refused at first.
  const [created, setCreated] = useState<CreatedKey>();
  const { mutate, isPending, error } = useMutation({
    mutationFn: create,
    onSuccess: async (key) => {
      setCreated(key);
      setName("");
      await client.invalidateQueries({ queryKey: listKey });
    },
  });

  function submit(event: SubmitEvent): void {
    event.preventDefault();
    mutate({ name, scope, lifetime_days: days === "" ? null : Number(days) });
  }

  return (
    <div className="flex flex-col gap-3">
      <form onSubmit={submit} className="flex max-w-4xl flex-wrap items-start gap-2">
        <NameField label="Name of the new key" hidesLabel placeholder="Name, such as laptop" className="min-w-48 flex-1" value={name} onChange={setName} />
        <Select
          aria-label="Scope of the new key"
          value={scope}
          onChange={(event) => {
            setScope(event.target.value as ApiKey["scope"]);
          }}
        >
          {Object.entries({ ...SCOPE_LABELS, manage: manages }).map(([value, label]) => (
            <option key={value} value={value}>
              {value}: {label}
            </option>
          ))}
        </Select>
        <Select
          aria-label="Lifetime of the new key"
          value={days}
          onChange={(event) => {
            setDays(event.target.value);
          }}
        >
          {LIFETIMES.map(({ days, label }) => (
            <option key={days} value={days}>
              {label}
            </option>
          ))}
        </Select>
        <Button type="submit" disabled={isPending}>
          Create key
        </Button>
      </form>
      {error !== null && <ErrorNote error={error} />}
      {created !== undefined && (
        <div role="status" className="panel px-4 py-3">
          <p className="mb-1">
            Key “{created.name}” created. Copy it now; it will not be shown again.
          </p>
          <Copyable text={created.secret} />
        </div>
      )}
    </div>
  );
}
