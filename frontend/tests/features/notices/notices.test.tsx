import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { AsyncBoundary } from "@/components/AsyncBoundary";
import { MarkAllRead } from "@/features/notices/MarkAllRead";
import { NoticeChoices } from "@/features/notices/NoticeChoices";
import { NoticeList } from "@/features/notices/NoticeList";
import { UnreadCount } from "@/features/notices/UnreadCount";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const NEW = { id: "notice_1", kind: "run.failed", time: "2026-11-20T10:00:00Z", team: "lab", sentence: "pilot failed: out of memory", path: "/lab/runs/run_01vm77m", read: null };
const OLD = { ...NEW, id: "notice_2", sentence: "letters is done: loss 7.058.", read: "2026-11-20T11:00:00Z" };
const CHOICES = [
  { kind: "run.ended", app: true, mail: false },
  { kind: "limit.reached", app: false, mail: false },
];

it("lists notices, counts the unread ones, and marks them as read", async () => {
  const sent: unknown[] = [];
  let items = [NEW, OLD];
  server.use(
    http.get("*/api/v1/me/notices", () => HttpResponse.json({ items, next_cursor: null, unread: items.filter(({ read }) => read === null).length })),
    http.post("*/api/v1/me/notices/read", async ({ request }) => {
      sent.push(await request.json());
      items = [{ ...NEW, read: "2026-11-20T12:00:00Z" }, OLD];
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <UnreadCount />
      <MarkAllRead />
      <NoticeList teams={[{ slug: "lab", name: "The lab" }]} />
    </AsyncBoundary>,
  );
  expect((await screen.findByRole("link", { name: NEW.sentence })).getAttribute("href")).toBe("/lab/runs/run_01vm77m");
  expect((await screen.findByText("unread")).parentElement?.textContent).toBe("1 unread");
  expect(screen.getAllByText("New")).toHaveLength(1);
  expect(screen.getAllByText(/^The lab ·/)).toHaveLength(2);
  await userEvent.click(screen.getByRole("button", { name: "Mark all as read" }));
  await waitFor(() => {
    expect(screen.queryByText("New")).toBeNull();
  });
  expect(sent).toEqual([{ ids: null }]);
  await waitFor(() => {
    expect(screen.queryByText("unread")).toBeNull();
  });
});

it("marks one notice as read, and tells runs of the same name apart", async () => {
  const sent: unknown[] = [];
  const twin = { ...NEW, id: "notice_3", path: "/lab/runs/run_014kq2p" };
  server.use(
    http.get("*/api/v1/me/notices", () => HttpResponse.json({ items: [NEW, twin, OLD], next_cursor: null, unread: 2 })),
    http.post("*/api/v1/me/notices/read", async ({ request }) => {
      sent.push(await request.json());
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <NoticeList teams={[]} />
    </AsyncBoundary>,
  );
  const [first, second, old] = await screen.findAllByRole("listitem");
  expect([first, second, old].map((item) => item?.textContent)).toEqual([expect.stringContaining("vm77m"), expect.stringContaining("4kq2p"), expect.not.stringContaining("Mark as read")]);
  await userEvent.click(within(second as HTMLElement).getByRole("button", { name: /^Mark as read/ }));
  await waitFor(() => {
    expect(sent).toEqual([{ ids: ["notice_3"] }]);
  });
});

it("says that there are none", async () => {
  server.use(http.get("*/api/v1/me/notices", () => HttpResponse.json({ items: [], next_cursor: null, unread: 0 })));
  renderRoute(
    <AsyncBoundary>
      <NoticeList teams={[{ slug: "lab", name: "The lab" }]} />
    </AsyncBoundary>,
  );
  expect(await screen.findByText("No notices yet.")).toBeDefined();
});

it("chooses mail for a kind, if mail can reach the person", async () => {
  const sent: unknown[] = [];
  server.use(
    http.get("*/api/v1/me/notices/settings", () => HttpResponse.json({ choices: CHOICES, address: "ana@lab.example", mail_problem: "" })),
    http.put("*/api/v1/me/notices/settings", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ choices: [{ ...CHOICES[0], mail: true }, CHOICES[1]], address: "ana@lab.example", mail_problem: "" });
    }),
  );
  renderRoute(
    <AsyncBoundary>
      <NoticeChoices />
    </AsyncBoundary>,
  );
  const mail = await screen.findByLabelText<HTMLInputElement>("Your run is done or was cancelled: by email");
  await userEvent.click(mail);
  await waitFor(() => {
    expect(mail.checked).toBe(true);
  });
  expect(sent).toEqual([{ choices: [{ kind: "run.ended", app: true, mail: true }] }]);
  expect(screen.getByText("Emails go to ana@lab.example.")).toBeDefined();
});

it("does not offer emails that cannot arrive, and says why", async () => {
  server.use(http.get("*/api/v1/me/notices/settings", () => HttpResponse.json({ choices: CHOICES, address: "ana@lab.example", mail_problem: "Your address is not verified." })));
  renderRoute(
    <AsyncBoundary>
      <NoticeChoices />
    </AsyncBoundary>,
  );
  expect((await screen.findByLabelText<HTMLInputElement>("80 or 100 % of a limit is used: by email")).disabled).toBe(true);
  expect(screen.getByLabelText<HTMLInputElement>("80 or 100 % of a limit is used: in the app").disabled).toBe(false);
  expect(screen.getByText("Your address is not verified.")).toBeDefined();
});
