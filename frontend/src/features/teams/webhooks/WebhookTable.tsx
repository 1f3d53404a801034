import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { components } from "@/api/schema";
import { Button } from "@/components/Button";
import { ConfirmDialog } from "@/components/ConfirmDialog";
import { EmptyState } from "@/components/EmptyState";
import { ErrorNote } from "@/components/ErrorNote";
import { rowClass, Table } from "@/components/Table";
import { Td } from "@/components/Td";
import { Th } from "@/components/Th";
import { Time } from "@/components/Time";
import { deleteWebhook, eventLabel, eventsText, testWebhook, webhooksQuery } from "@/features/teams/webhooks/webhookQueries";
import { plural } from "@/lib/format";

type Delivery = components["schemas"]["WebhookDelivery"];

/** The team's webhooks, and whether their newest messages were delivered; for owners. */
export function WebhookTable({ team }: { team: string }) {
  const { data } = useSuspenseQuery(webhooksQuery(team));
  const client = useQueryClient();
  const refresh = () => client.invalidateQueries({ queryKey: ["team", team, "webhooks"] });
  const test = useMutation({ mutationFn: (webhook: string) => testWebhook(team, webhook), onSuccess: refresh });
  const [deleting, setDeleting] = useState<{ id: string; url: string } | null>(null);
  const deletion = useMutation({
    mutationFn: (webhook: string) => deleteWebhook(team, webhook),
    onSuccess: async () => {
      setDeleting(null);
      await refresh();
    },
  });
  if (data.length === 0) return <EmptyState title="No webhooks yet.">Create one to get messages when runs end or a limit is reached.</EmptyState>;
  return (
    <div className="flex flex-col gap-3">
      {test.error !== null && <ErrorNote error={test.error} />}
      <Table
        label="Webhooks"
        head={
          <>
            <Th>address</Th>
            <Th className="max-tablet:hidden">newest messages</Th>
            <Th>
              <span className="sr-only">actions</span>
            </Th>
          </>
        }
      >
        {data.map(({ id, url, events, deliveries }) => (
          <tr key={id} className={`${rowClass} align-top`}>
            <Td className="break-all">
              {url}
              <span className="block text-small break-normal text-soft">{eventsText(events)}</span>
              <span className="mt-1 block text-small break-normal text-soft tablet:hidden">
                <Deliveries deliveries={deliveries} />
              </span>
            </Td>
            <Td className="text-soft max-tablet:hidden">
              <Deliveries deliveries={deliveries} />
            </Td>
            <Td className="text-right whitespace-nowrap max-tablet:w-24 max-tablet:whitespace-normal">
              <Button
                variant="quiet"
                aria-label={`Send a test to ${url}`}
                onClick={() => {
                  test.mutate(id);
                }}
              >
                Send test
              </Button>
              <button
                type="button"
                className="ml-2 text-bad hover:underline max-tablet:min-h-11 max-tablet:min-w-11"
                aria-label={`Delete the webhook to ${url}`}
                onClick={() => {
                  setDeleting({ id, url });
                }}
              >
                Delete
              </button>
            </Td>
          </tr>
        ))}
      </Table>
      {deleting !== null && (
        <ConfirmDialog
          title={`Delete the webhook to ${deleting.url}?`}
          consequence="No more messages will be sent to this address. The secret that signs them will be deleted."
          confirmLabel="Delete"
          cancelLabel="Cancel"
          busy={deletion.isPending}
          error={deletion.error}
          onConfirm={() => {
            deletion.mutate(deleting.id);
          }}
          onClose={() => {
            deletion.reset();
            setDeleting(null);
          }}
        />
      )}
    </div>
  );
}

/** Whether the newest messages were delivered. */
function Deliveries({ deliveries }: { deliveries: readonly Delivery[] }) {
  if (deliveries.length === 0) return "no messages yet";
  return deliveries.slice(0, 3).map((delivery) => (
    <span key={delivery.id} className="block">
      {eventLabel(delivery.event)}, <Time at={delivery.created} />, <span className={delivery.error === "" ? "" : "text-bad"}>{deliveryText(delivery)}</span>
    </span>
  ));
}

/** "delivered", "waiting", or why not, and whether it is tried again. */
export function deliveryText({ delivered, attempts, error, next_attempt: next }: Delivery): string {
  if (delivered != null) return "delivered";
  if (attempts === 0) return "waiting";
  return `${error.replace(/[^.]$/, "$&.")} ${next == null ? `Given up after ${plural(attempts, "attempt")}.` : "It will be retried."}`;
}
