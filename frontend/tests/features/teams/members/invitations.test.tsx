import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { PendingInvitation } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { InvitationTable } from "@/features/teams/members/InvitationTable";
import { InviteForm } from "@/features/teams/members/InviteForm";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const LINK = "https://train.example.org/link/secret";

it("shows the link of an invitation once, lists the invitation without it, and revokes it after asking", async () => {
  let open: PendingInvitation[] = [];
  const asked: unknown[] = [];
  server.use(
    http.get("*/api/v1/teams/lab/invitations", () => HttpResponse.json({ items: open })),
    http.post("*/api/v1/teams/lab/invitations", async ({ request }) => {
      asked.push(await request.json());
      open = [{ id: "invite_1", email: "bob@example.org", role: "editor", expires: "2026-11-28T13:00:00Z" }];
      return HttpResponse.json({ ...open[0], link: LINK }, { status: 201 });
    }),
    http.delete("*/api/v1/teams/lab/invitations/invite_1", () => {
      open = [];
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <InviteForm team="lab" />
      <InvitationTable team="lab" />
    </AsyncBoundary>,
  );
  await screen.findByText("No pending invitations.");
  await userEvent.type(screen.getByLabelText("Email address to invite"), "bob@example.org");
  await userEvent.selectOptions(screen.getByLabelText("Role to give"), "editor");
  await userEvent.click(screen.getByRole("button", { name: "Invite" }));
  expect(await screen.findByText(LINK)).toBeDefined();
  expect(asked).toEqual([{ email: "bob@example.org", role: "editor" }]);
  const table = await screen.findByRole("region", { name: "Invitations" });
  expect(table.textContent).toContain("bob@example.org");
  expect(table.textContent).not.toContain("secret");
  await userEvent.click(within(table).getByRole("button", { name: /^Revoke ?the invitation for bob@example.org$/ }));
  await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Revoke" }));
  await waitFor(() => {
    expect(screen.queryByRole("region", { name: "Invitations" })).toBeNull();
  });
});

it("shows why an invitation failed, and keeps the input", async () => {
  const refusal = { title: "Conflict", status: 409, code: "already_member", detail: "bob@example.org is in the team already." };
  server.use(http.post("*/api/v1/teams/lab/invitations", () => HttpResponse.json(refusal, { status: 409 })));
  renderRoute(<InviteForm team="lab" />);
  await userEvent.type(await screen.findByLabelText("Email address to invite"), "bob@example.org");
  await userEvent.click(screen.getByRole("button", { name: "Invite" }));
  expect((await screen.findByRole("alert")).textContent).toContain(refusal.detail);
  expect(screen.getByLabelText<HTMLInputElement>("Email address to invite").value).toBe("bob@example.org");
});

it("keeps showing a link while another invitation fails", async () => {
  const expires = "2026-11-28T13:00:00Z";
  const responses = [
    () => HttpResponse.json({ id: "invite_1", email: "bob@example.org", role: "viewer", expires, link: LINK }, { status: 201 }),
    () => HttpResponse.json({ title: "Conflict", status: 409, code: "already_member", detail: "ann is in the team." }, { status: 409 }),
  ];
  server.use(http.post("*/api/v1/teams/lab/invitations", () => responses.shift()?.()));
  renderRoute(<InviteForm team="lab" />);
  const field = await screen.findByLabelText<HTMLInputElement>("Email address to invite");
  await userEvent.type(field, "bob@example.org");
  await userEvent.click(screen.getByRole("button", { name: "Invite" }));
  expect(await screen.findByText(LINK)).toBeDefined();
  expect(field.value).toBe("");
  await userEvent.type(field, "ann@example.org");
  await userEvent.click(screen.getByRole("button", { name: "Invite" }));
  expect((await screen.findByRole("alert")).textContent).toContain("ann is in the team.");
  expect(screen.getByText(LINK)).toBeDefined();
});

it("shows only the newest link for an address, since the earlier one no longer works", async () => {
  const links = ["https://train.example.org/link/first", "https://train.example.org/link/second"];
  const response = () => HttpResponse.json({ id: `invite_${links.length}`, email: "bob@example.org", role: "viewer", expires: "2026-11-28T13:00:00Z", link: links.shift() }, { status: 201 });
  server.use(http.post("*/api/v1/teams/lab/invitations", response));
  renderRoute(<InviteForm team="lab" />);
  const field = await screen.findByLabelText("Email address to invite");
  for (const link of [...links]) {
    await userEvent.type(field, "bob@example.org");
    await userEvent.click(screen.getByRole("button", { name: "Invite" }));
    expect(await screen.findByText(link)).toBeDefined();
  }
  expect(screen.queryByText("https://train.example.org/link/first")).toBeNull();
});
