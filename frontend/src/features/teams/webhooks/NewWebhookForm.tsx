import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { problemAt, withoutProblemsAt } from "@/api/errors";
import { Button } from "@/components/Button";
import { Copyable } from "@/components/Copyable";
import { ErrorNote } from "@/components/ErrorNote";
import { Field } from "@/components/Field";
import { TextInput } from "@/components/TextInput";
import { createWebhook, EVENT_LABELS, type WebhookEvent } from "@/features/teams/webhooks/webhookQueries";

const EVENTS = Object.entries(EVENT_LABELS) as [WebhookEvent, string][];

/** Creates a webhook and shows its secret once. */
export function NewWebhookForm({ team }: { team: string }) {
  const [url, setUrl] = useState("");
  const [events, setEvents] = useState<readonly WebhookEvent[]>(EVENTS.map(([event]) => event));
  const client = useQueryClient();
  const [wasSubmitted, setSubmitted] = useState(false);
  // A secret is shown only once, so it stays visible until the next webhook is created, also if that is refused at first.
  const [secret, setSecret] = useState<string>();
  const { mutate, isPending, error, reset } = useMutation({
    mutationFn: () => createWebhook(team, url.trim(), [...events]),
    onSuccess: async (webhook) => {
      setSecret(webhook.secret);
      setUrl("");
      await client.invalidateQueries({ queryKey: ["team", team, "webhooks"] });
    },
  });
  const otherError = withoutProblemsAt(error, ["url"]);
  const hasNoEvents = events.length === 0;
  return (
    <form
      className="flex flex-col gap-3"
      onSubmit={(event) => {
        event.preventDefault();
        setSubmitted(true);
        if (!hasNoEvents) mutate();
      }}
    >
      <Field label="Address of the new webhook" hidesLabel className="max-w-4xl" error={problemAt(error, "url")} help={isUnencrypted(url) ? <span className="text-warn">{UNENCRYPTED}</span> : undefined}>
        {(control) => (
          <TextInput
            {...control}
            type="url"
            placeholder="https://example.org/hook"
            required
            value={url}
            onChange={(event) => {
              setUrl(event.target.value);
              if (error !== null) reset();
            }}
          />
        )}
      </Field>
      <fieldset className="flex flex-wrap gap-x-6 gap-y-1 max-tablet:flex-col">
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
        {wasSubmitted && hasNoEvents && (
          <p role="alert" className="basis-full text-small text-bad">
            Choose at least one event.
          </p>
        )}
      </fieldset>
      <Button type="submit" disabled={isPending} className="self-start">
        Create webhook
      </Button>
      {otherError !== null && <ErrorNote error={otherError} />}
      {secret !== undefined && (
        <div role="status" className="panel px-4 py-3">
          <p className="mb-1">The receiver needs this secret to verify signatures. Copy it now; it will not be shown again.</p>
          <Copyable text={secret} />
        </div>
      )}
    </form>
  );
}

const UNENCRYPTED = "Messages to this address are sent unencrypted, so anyone on the network path can read them. The signature only shows whether they were changed. Use https:// if the receiver has it.";

function isUnencrypted(url: string): boolean {
  return /^\s*http:\/\//i.test(url);
}
