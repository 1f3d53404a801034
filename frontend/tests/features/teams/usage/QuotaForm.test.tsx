import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { Boundary } from "@/components/Boundary";
import { QuotaForm } from "@/features/teams/usage/QuotaForm";
import { QuotaMeters } from "@/features/teams/usage/QuotaMeters";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("changes a team's limit of slots, and sends nothing that is not a number", async () => {
  const sent: unknown[] = [];
  let limit = 8;
  server.use(
    http.get("*/api/v1/teams/lab", () => HttpResponse.json({ slug: "lab", name: "lab", quota: [{ device: "cpu", limit, used: 0, joined: 2, guaranteed_slots: 0 }], storage: { used_bytes: 0, limit_bytes: 1 } })),
    http.put("*/api/v1/teams/lab/quota/cpu", async ({ request }) => {
      const body = (await request.json()) as { limit: number };
      sent.push(body);
      limit = body.limit;
      return HttpResponse.json({ device: "cpu", limit, used: 0 });
    }),
  );
  renderRoute(
    <Boundary>
      <QuotaForm team="lab" />
    </Boundary>,
  );
  const field = await screen.findByLabelText("Limit of CPU slots");
  const save = screen.getByRole<HTMLButtonElement>("button", { name: "Save" });
  expect(save.disabled).toBe(true);
  await userEvent.clear(field);
  await userEvent.type(field, "4x");
  expect(screen.getByText("Write a whole number from 0 to 1,000,000.")).toBeDefined();
  expect(save.disabled).toBe(true);
  await userEvent.type(field, "{Backspace}");
  await userEvent.click(save);
  await waitFor(() => {
    expect(sent).toEqual([{ limit: 4, guaranteed_slots: 0 }]);
  });
  await waitFor(() => {
    expect(save.disabled).toBe(true);
  });
});

it("changes a team's guaranteed share, which is at most its limit, and shows the warning", async () => {
  const sent: unknown[] = [];
  let share = 1;
  const quota = () => ({ device: "cpu", limit: 4, used: 3, joined: 8, guaranteed_slots: share });
  server.use(
    http.get("*/api/v1/teams/lab", () => HttpResponse.json({ slug: "lab", name: "lab", quota: [quota()], storage: { used_bytes: 0, limit_bytes: 1 } })),
    http.put("*/api/v1/teams/lab/quota/cpu", async ({ request }) => {
      const body = (await request.json()) as { guaranteed_slots: number };
      sent.push(body);
      share = body.guaranteed_slots;
      return HttpResponse.json({ ...quota(), warning: "The shares of all teams are 9 CPU slots, and the nodes have 8." });
    }),
  );
  renderRoute(
    <Boundary>
      <QuotaForm team="lab" />
      <QuotaMeters team="lab" />
    </Boundary>,
  );
  expect(await screen.findByText("1 guaranteed, 2 borrowed")).toBeDefined();
  const field = await screen.findByLabelText("Guaranteed CPU slots");
  const save = screen.getByRole<HTMLButtonElement>("button", { name: "Save" });
  await userEvent.clear(field);
  await userEvent.type(field, "5");
  expect(screen.getByText("At most the limit.")).toBeDefined();
  expect(save.disabled).toBe(true);
  await userEvent.clear(field);
  await userEvent.type(field, "3");
  await userEvent.click(save);
  expect((await screen.findByRole("status")).textContent).toContain("The shares of all teams are 9 CPU slots");
  expect(sent).toEqual([{ limit: 4, guaranteed_slots: 3 }]);
  expect(await screen.findByText("3 guaranteed")).toBeDefined();
});
