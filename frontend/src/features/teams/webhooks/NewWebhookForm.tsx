import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useId, useState } from "react";
import { ApiError } from "@/api/errors";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { TextInput } from "@/components/TextInput";
import { createWebhook, EVENT_LABELS, type WebhookEvent } from "@/features/teams/webhooks/webhookQueries";

const EVENTS = Object.entries(EVENT_LABELS) as [WebhookEvent, string][];

/** Creates a webhook and shows its secret once. */
export function NewWebhookForm({ team }: { team: string }) {
  const [url, setUrl] = useState("");
  const [events, setEvents] = useState<readonly WebhookEvent[]>(EVENTS.map(([event]) => event));
  const client = useQueryClient();
  const refusalId = useId();
  const { mutate, data, isPending, error, reset } = useMutation({
    mutationFn: () => createWebhook(team, url.trim(), [...events]),
    onSuccess: async () => {
      setUrl("");
      await client.invalidateQueries({ queryKey: ["team", team, "webhooks"] });
    },
  });
  const problems = error instanceof ApiError ? error.problems : [];
  const refusal = problems.find(({ field }) => field === "url")?.message;
  return (
    <form
      className="flex flex-col gap-3"
      onSubmit={(event) => {
        event.preventDefault();
        mutate();
      }}
    >
      <div className="flex max-w-4xl flex-wrap gap-2">
        <TextInput
          type="url"
          aria-label="Address of the new webhook"
          aria-invalid={refusal === undefined ? undefined : true}
          aria-describedby={refusal === undefined ? undefined : refusalId}
          placeholder="https://example.org/hook"
          required
          className="min-w-40 flex-1"
          value={url}
          onChange={(event) => {
            setUrl(event.target.value);
            if (refusal !== undefined) reset();
          }}
        />
        <Button type="submit" disabled={isPending || events.length === 0}>
          Create webhook
        </Button>
        {refusal !== undefined && (
          <p id={refusalId} role="alert" className="basis-full text-small text-bad">
            {refusal}
          </p>
        )}
      </div>
      <fieldset className="flex flex-wrap gap-x-6 gap-y-1">
        <legend className="sr-only">Events</legend>
        {EVENTS.map(([event, label]) => (
          <label key={event} className="flex items-center gap-2 max-tablet:min-h-11">
            <input
              type="checkbox"
              checked={events.includes(event)}
              onChange={({ target }) => {
                setEvents(EVENTS.map(([one]) => one).filter((one) => (one === event ? target.checked : events.includes(one))));
              }}
            />
            {label}
          </label>
        ))}
      </fieldset>
      {error !== null && (refusal === undefined || problems.length > 1) && <ErrorNote error={error} />}
      {data !== undefined && (
        <div role="status" className="panel px-4 py-3">
          <p className="mb-1">The receiver needs this secret to verify signatures. Copy it now; it will not be shown again.</p>
          <Copyable text={data.secret} />
        </div>
      )}
    </form>
  );
}
