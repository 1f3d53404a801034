import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { OwnKeys } from "@/features/auth/OwnKeys";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const KEY = { id: "key_1", name: "old", prefix: "tw_0", created: "2026-01-01T00:00:00Z", last_used: null, scope: "manage", expires: null };

it("creates a key with the chosen scope and lifetime, and shows which ones have expired", async () => {
  const sent: unknown[] = [];
  const keys = [KEY, { ...KEY, id: "key_2", name: "gone", expires: "2026-01-02T00:00:00Z" }];
  server.use(
    http.get("*/api/v1/me/keys", () => HttpResponse.json(keys)),
    http.post("*/api/v1/me/keys", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ ...KEY, secret: "tw_secret" }, { status: 201 });
    }),
  );
  renderRoute(<OwnKeys />);
  expect((await screen.findByRole("row", { name: /gone/ })).textContent).toContain("expired");
  expect(screen.getByRole("row", { name: /old/ }).textContent).not.toContain("expired");
  await userEvent.type(screen.getByLabelText("Name of the new key"), "nightly");
  await userEvent.selectOptions(screen.getByLabelText("Scope of the new key"), "read");
  await userEvent.selectOptions(screen.getByLabelText("Lifetime of the new key"), "does not expire");
  await userEvent.click(screen.getByRole("button", { name: "Create key" }));
  await screen.findByText("tw_secret");
  await waitFor(() => {
    expect(sent).toEqual([{ name: "nightly", scope: "read", lifetime_days: null }]);
  });
});
