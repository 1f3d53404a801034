import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { NewServiceAccountForm } from "@/features/teams/serviceAccounts/NewServiceAccountForm";
import { ServiceAccountList } from "@/features/teams/serviceAccounts/ServiceAccountList";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const TIMES = { created: "2026-11-20T08:00:00Z", last_used: null, expires: null };
const KEY = { id: "key_1", name: "ci", prefix: "tw_0", scope: "submit", ...TIMES };

it("creates a service account and its key, revokes the key, and deletes the account with its runs", async () => {
  let accounts: { id: string; name: string; role: string; created: string; keys: (typeof KEY)[] }[] = [];
  const sent: unknown[] = [];
  const path = "*/api/v1/teams/lab/service-accounts";
  server.use(
    http.get(path, () => HttpResponse.json(accounts)),
    http.post(path, async ({ request }) => {
      sent.push(await request.json());
      accounts = [{ id: "user_1", name: "nightly", role: "editor", created: TIMES.created, keys: [] }];
      return HttpResponse.json(accounts[0], { status: 201 });
    }),
    http.post(`${path}/user_1/keys`, async ({ request }) => {
      sent.push(await request.json());
      accounts = accounts.map((account) => ({ ...account, keys: [KEY] }));
      return HttpResponse.json({ ...KEY, secret: "tw_secret" }, { status: 201 });
    }),
    http.delete(`${path}/user_1/keys/key_1`, () => {
      sent.push("revoked");
      accounts = accounts.map((account) => ({ ...account, keys: [] }));
      return new HttpResponse(null, { status: 204 });
    }),
    http.delete(`${path}/user_1`, ({ request }) => {
      sent.push(new URL(request.url).search);
      accounts = [];
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(
    <>
      <NewServiceAccountForm team="lab" />
      <AsyncBoundary>
        <ServiceAccountList team="lab" />
      </AsyncBoundary>
    </>,
  );
  await screen.findByText("No service accounts yet.");
  await userEvent.type(screen.getByLabelText("Name of the new service account"), "nightly");
  await userEvent.click(screen.getByRole("button", { name: "Create service account" }));
  const shown = within(await screen.findByRole("region", { name: "nightly" }));
  await userEvent.type(shown.getByLabelText("Name of the new key"), "ci");
  await userEvent.click(shown.getByRole("button", { name: "Create key" }));
  expect(await shown.findByText("tw_secret")).toBeDefined();
  await userEvent.click(await shown.findByRole("button", { name: /^Revoke ?ci$/ }));
  await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Revoke" }));
  await waitFor(() => {
    expect(shown.queryByRole("button", { name: /^Revoke ?ci$/ })).toBeNull();
  });
  await userEvent.click(shown.getByRole("button", { name: /^Delete/ }));
  const dialog = within(screen.getByRole("dialog"));
  expect(dialog.getByText(/^Its keys stop working at once\./)).toBeDefined();
  await userEvent.click(dialog.getByLabelText("Cancel its unfinished runs"));
  await userEvent.click(dialog.getByRole("button", { name: "Delete" }));
  await screen.findByText("No service accounts yet.");
  expect(sent).toEqual([
    { name: "nightly", role: "editor" },
    { name: "ci", scope: "submit", lifetime_days: 90 },
    "revoked",
    "?runs=cancel",
  ]);
});
