import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Member } from "@/api/types";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { MemberTable } from "@/features/teams/members/MemberTable";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const ADA: Member = { id: "user_ada", name: "Ada", email: "ada@example.org", role: "owner", service: false };
const BOB: Member = { id: "user_bob", name: "Bob", email: "bob@example.org", role: "editor", service: false };
const CY: Member = { id: "user_cy", name: "Cy", email: "cy@example.org", role: "editor", service: false };

interface Shown {
  sent: string[];
  events: string[];
}

/** The table of a team whose members change with the requests. */
function show(people: Member[], me: string): Shown {
  const shown: Shown = { sent: [], events: [] };
  let members = people;
  server.use(
    http.get("*/api/v1/teams/lab/members", () => HttpResponse.json({ items: members })),
    http.patch("*/api/v1/teams/lab/members/:id", async ({ request, params }) => {
      const { role } = (await request.json()) as Pick<Member, "role">;
      shown.sent.push(`${String(params["id"])} becomes ${role}`);
      members = members.map((member) => (member.id === params["id"] ? { ...member, role } : member));
      return HttpResponse.json(members.find(({ id }) => id === params["id"]));
    }),
    http.delete("*/api/v1/teams/lab/members/:id", ({ request, params }) => {
      const runs = new URL(request.url).searchParams.get("runs") === "cancel" ? ", runs cancelled" : "";
      shown.sent.push(`${String(params["id"])} removed${runs}`);
      members = members.filter(({ id }) => id !== params["id"]);
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <MemberTable
        team="lab"
        me={me}
        onChanged={() => {
          shown.events.push("changed");
          return Promise.resolve();
        }}
        onLeft={() => {
          shown.events.push("left");
          return Promise.resolve();
        }}
      />
    </AsyncBoundary>,
  );
  return shown;
}

it("does not break email addresses between letters", async () => {
  show([ADA], ADA.id);
  const addresses = await screen.findAllByText(ADA.email);
  expect(addresses).toHaveLength(2);
  for (const { innerHTML, className } of addresses) {
    expect(innerHTML).toBe("ada@<wbr>example.<wbr>org");
    expect(className).not.toContain("break-all");
  }
});

it("changes a role and removes a person after explaining the effect", async () => {
  const { sent, events } = show([ADA, BOB], ADA.id);
  await userEvent.selectOptions(await screen.findByLabelText("Role of Bob"), "owner");
  const dialog = screen.getByRole("dialog", { name: "Make Bob an owner?" });
  expect(dialog.textContent).toContain("remove anyone, you included");
  await userEvent.click(within(dialog).getByRole("button", { name: "Cancel" }));
  expect(screen.getByLabelText<HTMLSelectElement>("Role of Bob").value).toBe("editor");
  expect(sent).toEqual([]);
  await userEvent.selectOptions(screen.getByLabelText("Role of Bob"), "viewer");
  await userEvent.click(screen.getByRole("button", { name: "Change role" }));
  await waitFor(() => {
    expect(screen.getByLabelText<HTMLSelectElement>("Role of Bob").value).toBe("viewer");
  });
  await userEvent.click(screen.getByRole("button", { name: /^Remove ?Bob$/ }));
  expect(screen.getByRole("dialog").textContent).toContain("Their API keys stop working for this team at once. Their runs continue");
  await userEvent.click(screen.getByRole("button", { name: "Remove" }));
  await waitFor(() => {
    expect(screen.queryByText("Bob")).toBeNull();
  });
  expect(sent).toEqual(["user_bob becomes viewer", "user_bob removed"]);
  expect(events).toEqual([]);
});

it("cancels the runs of one person, and keeps those of the next unless asked", async () => {
  const { sent } = show([ADA, BOB, CY], ADA.id);
  await userEvent.click(await screen.findByRole("button", { name: /^Remove ?Bob$/ }));
  await userEvent.click(screen.getByRole("checkbox", { name: "Cancel their unfinished runs" }));
  await userEvent.click(screen.getByRole("button", { name: "Remove" }));
  await waitFor(() => {
    expect(screen.queryByText("Bob")).toBeNull();
  });
  await userEvent.click(screen.getByRole("button", { name: /^Remove ?Cy$/ }));
  expect(screen.getByRole<HTMLInputElement>("checkbox").checked).toBe(false);
  await userEvent.click(screen.getByRole("button", { name: "Remove" }));
  await waitFor(() => {
    expect(screen.queryByText("Cy")).toBeNull();
  });
  expect(sent).toEqual(["user_bob removed, runs cancelled", "user_cy removed"]);
});

it("keeps the only owner, and lets them go once there is another", async () => {
  const { sent, events } = show([ADA, BOB], ADA.id);
  expect(await screen.findByText("The only owner cannot leave. Make another member an owner first.")).toBeDefined();
  expect(screen.queryByLabelText("Role of Ada")).toBeNull();
  expect(screen.queryByRole("button", { name: "Leave" })).toBeNull();
  await userEvent.selectOptions(screen.getByLabelText("Role of Bob"), "owner");
  await userEvent.click(screen.getByRole("button", { name: "Change role" }));
  await userEvent.selectOptions(await screen.findByLabelText("Role of Ada"), "editor");
  expect(screen.getByRole("dialog").textContent).toContain("Pending invitations that you created are revoked.");
  await userEvent.click(screen.getByRole("button", { name: "Change role" }));
  await waitFor(() => {
    expect(events).toEqual(["changed"]);
  });
  expect(sent).toEqual(["user_bob becomes owner", "user_ada becomes editor"]);
});

it("lets a member leave and do nothing else", async () => {
  const { sent, events } = show([ADA, BOB], BOB.id);
  await screen.findByText("Ada");
  expect(screen.queryByRole("combobox")).toBeNull();
  expect(screen.queryByRole("button", { name: /Remove/ })).toBeNull();
  await userEvent.click(screen.getByRole("button", { name: "Leave" }));
  expect(screen.getByRole("dialog").textContent).toContain("To come back, you need an invitation.");
  await userEvent.click(within(screen.getByRole("dialog")).getByRole("button", { name: "Leave" }));
  await waitFor(() => {
    expect(events).toEqual(["left"]);
  });
  expect(sent).toEqual(["me removed"]);
});

it("shows why a change is refused", async () => {
  show([ADA, { ...BOB, role: "owner" }], ADA.id);
  const detail = "Bob cannot be removed: a team needs an owner, and this is the last one.";
  server.use(http.delete("*/api/v1/teams/lab/members/:id", () => HttpResponse.json({ status: 409, code: "last_owner", detail }, { status: 409 })));
  await userEvent.click(await screen.findByRole("button", { name: /^Remove ?Bob$/ }));
  await userEvent.click(screen.getByRole("button", { name: "Remove" }));
  expect((await screen.findByRole("alert")).textContent).toContain(detail);
});

it("makes no service account an owner, and leaves its removal to its own section", async () => {
  show([ADA, { id: "user_nightly", name: "nightly", email: "", role: "editor", service: true }], ADA.id);
  const role = await screen.findByLabelText("Role of nightly");
  expect(within(role).getAllByRole("option").map((option) => option.textContent)).toEqual(expect.not.arrayContaining(["owner"]));
  expect(screen.getAllByText("service account").length).toBeGreaterThan(0);
  expect(screen.queryByRole("button", { name: /^Remove ?nightly$/ })).toBeNull();
});
