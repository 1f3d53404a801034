import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { NewWebhookForm } from "@/features/teams/webhooks/NewWebhookForm";
import { deliveryText, WebhookTable } from "@/features/teams/webhooks/WebhookTable";
import { EVENT_LABELS, eventsText, type WebhookEvent } from "@/features/teams/webhooks/webhookQueries";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const FAILED = { id: "msg_1", event: "test", created: "2026-11-20T10:00:00Z", attempts: 1, delivered: null, next_attempt: "2026-11-20T10:00:05Z", status: 500, error: "The address answered 500." } as const;

it("creates a webhook for the chosen events, and shows its secret", async () => {
  const sent: unknown[] = [];
  server.use(
    http.post("*/api/v1/teams/lab/webhooks", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ id: "hook_1", secret: "whsec_abc" }, { status: 201 });
    }),
  );
  renderRoute(<NewWebhookForm team="lab" />);
  await userEvent.type(await screen.findByLabelText("Address of the new webhook"), "https://example.org/hook");
  await userEvent.click(screen.getByLabelText("A run is done or was cancelled"));
  await userEvent.click(screen.getByRole("button", { name: "Create webhook" }));
  expect(await screen.findByText("whsec_abc")).toBeDefined();
  expect(sent).toEqual([{ url: "https://example.org/hook", events: ["run.failed", "run.paused_by_limit", "limit.reached", "node.quarantined"] }]);
});

it("keeps a secret on the page while another webhook is refused", async () => {
  let isRefused = false;
  server.use(http.post("*/api/v1/teams/lab/webhooks", () => (isRefused ? HttpResponse.json({ status: 422, code: "invalid", detail: "Not a public address." }, { status: 422 }) : HttpResponse.json({ id: "hook_1", secret: "whsec_abc" }, { status: 201 }))));
  renderRoute(<NewWebhookForm team="lab" />);
  await userEvent.type(await screen.findByLabelText("Address of the new webhook"), "https://example.org/hook");
  await userEvent.click(screen.getByRole("button", { name: "Create webhook" }));
  await screen.findByText("whsec_abc");
  isRefused = true;
  await userEvent.type(screen.getByLabelText("Address of the new webhook"), "http://10.0.0.1/");
  await userEvent.click(screen.getByRole("button", { name: "Create webhook" }));
  await screen.findByText("Not a public address.");
  expect(screen.getByText("whsec_abc")).toBeDefined();
});

it("shows at the field why an address is refused, until it is changed", async () => {
  const message = "This is not a public address.";
  const refused = { title: "Invalid", status: 422, code: "invalid", detail: `url: ${message}`, errors: [{ field: "url", message, value: null }] };
  server.use(http.post("*/api/v1/teams/lab/webhooks", () => HttpResponse.json(refused, { status: 422 })));
  renderRoute(<NewWebhookForm team="lab" />);
  const address = await screen.findByLabelText("Address of the new webhook");
  await userEvent.type(address, "http://10.0.0.1/");
  await userEvent.click(screen.getByRole("button", { name: "Create webhook" }));
  const shown = await screen.findByText(message);
  expect(address.getAttribute("aria-describedby")?.split(" ")).toContain(shown.id);
  expect(screen.queryByRole("alert")).toBeNull();
  expect(address.getAttribute("aria-invalid")).toBe("true");
  await userEvent.type(address, "x");
  expect(screen.queryByText(message)).toBeNull();
});

it("warns of an address without encryption while it is typed", async () => {
  renderRoute(<NewWebhookForm team="lab" />);
  const address = await screen.findByLabelText("Address of the new webhook");
  await userEvent.type(address, "https://example.org");
  expect(screen.queryByText(/sent unencrypted/)).toBeNull();
  await userEvent.clear(address);
  await userEvent.type(address, "http://example.org");
  expect(screen.getByText(/sent unencrypted/)).toBeDefined();
});

it("asks for an address and an event", async () => {
  renderRoute(<NewWebhookForm team="lab" />);
  for (const box of await screen.findAllByRole("checkbox")) await userEvent.click(box);
  await userEvent.click(screen.getByRole("button", { name: "Create webhook" }));
  expect(screen.getByText("This field is required.")).toBeDefined();
  await userEvent.type(screen.getByLabelText("Address of the new webhook"), "https://example.org/hook");
  await userEvent.click(screen.getByRole("button", { name: "Create webhook" }));
  expect(screen.getByText("Choose at least one event.")).toBeDefined();
});

it("says that there are none", async () => {
  server.use(http.get("*/api/v1/teams/lab/webhooks", () => HttpResponse.json([])));
  renderRoute(
    <AsyncBoundary>
      <WebhookTable team="lab" />
    </AsyncBoundary>,
  );
  expect(await screen.findByText("No webhooks yet.")).toBeDefined();
});

it("shows the result of messages, sends a test, and deletes once that is confirmed", async () => {
  const calls: string[] = [];
  const hook = { id: "hook_1", url: "https://example.org/hook", events: ["run.failed"], created: "2026-11-20T09:00:00Z", created_by: "Ana", deliveries: [FAILED] };
  server.use(
    http.get("*/api/v1/teams/lab/webhooks", () => HttpResponse.json([hook])),
    http.post("*/api/v1/teams/lab/webhooks/hook_1/test", () => {
      calls.push("test");
      return HttpResponse.json(FAILED, { status: 202 });
    }),
    http.delete("*/api/v1/teams/lab/webhooks/hook_1", () => {
      calls.push("delete");
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <WebhookTable team="lab" />
    </AsyncBoundary>,
  );
  // Once in its own column, and once below the address for phones.
  expect(await screen.findAllByText("The address answered 500. It will be retried.")).toHaveLength(2);
  await userEvent.click(screen.getByRole("button", { name: "Send a test to https://example.org/hook" }));
  await userEvent.click(screen.getByRole("button", { name: "Delete the webhook to https://example.org/hook" }));
  await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Cancel" }));
  expect(calls).toEqual(["test"]);
  await userEvent.click(screen.getByRole("button", { name: "Delete the webhook to https://example.org/hook" }));
  await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Delete" }));
  await waitFor(() => {
    expect(calls).toEqual(["test", "delete"]);
  });
});

it("describes the status of a message", () => {
  expect(deliveryText({ ...FAILED, delivered: FAILED.created })).toBe("delivered");
  expect(deliveryText({ ...FAILED, attempts: 0, error: "" })).toBe("waiting");
  expect(deliveryText({ ...FAILED, attempts: 8, next_attempt: null })).toBe("The address answered 500. Given up after 8 attempts.");
  expect(deliveryText({ ...FAILED, error: "Name or service not known" })).toBe("Name or service not known. It will be retried.");
});

it("names the events of a webhook", () => {
  expect(eventsText(["run.failed", "limit.reached"])).toBe("A run failed; 80 or 100 % of a limit is used");
  expect(eventsText(Object.keys(EVENT_LABELS) as WebhookEvent[])).toBe("All events");
});
