import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { Boundary } from "@/components/Boundary";
import { QuotaForm } from "@/features/teams/usage/QuotaForm";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("changes a team's limit of slots, and sends nothing that is not a number", async () => {
  const sent: unknown[] = [];
  let limit = 8;
  server.use(
    http.get("*/api/v1/teams/lab", () => HttpResponse.json({ slug: "lab", name: "lab", quota: [{ device: "cpu", limit, used: 0, joined: 2 }], storage: { used_bytes: 0, limit_bytes: 1 } })),
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
  expect(screen.getByText("Write a whole number.")).toBeDefined();
  expect(save.disabled).toBe(true);
  await userEvent.type(field, "{Backspace}");
  await userEvent.click(save);
  await waitFor(() => {
    expect(sent).toEqual([{ limit: 4 }]);
  });
  await waitFor(() => {
    expect(screen.getByLabelText<HTMLInputElement>("Limit of CPU slots").value).toBe("4");
  });
});
