import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { Boundary } from "@/components/Boundary";
import { FileLimitForm } from "@/features/teams/usage/FileLimitForm";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const GIB = 2 ** 30;

it("changes the limit of files in GiB, and sends nothing that is not a number", async () => {
  const sent: unknown[] = [];
  server.use(
    http.get("*/api/v1/teams/lab", () => HttpResponse.json({ slug: "lab", name: "lab", quota: [], storage: { used_bytes: 0, limit_bytes: 10 * GIB } })),
    http.put("*/api/v1/teams/lab/storage", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ used_bytes: 0, limit_bytes: 2.5 * GIB });
    }),
  );
  renderRoute(
    <Boundary>
      <FileLimitForm team="lab" />
    </Boundary>,
  );
  const field = await screen.findByLabelText<HTMLInputElement>("Limit of files, GiB");
  const save = screen.getByRole<HTMLButtonElement>("button", { name: "Save" });
  expect([field.value, save.disabled]).toEqual(["10", true]);
  await userEvent.clear(field);
  expect(screen.getByText("Write a number of GiB.")).toBeDefined();
  expect(save.disabled).toBe(true);
  await userEvent.type(field, "2.5");
  await userEvent.click(save);
  await waitFor(() => {
    expect(sent).toEqual([{ limit_bytes: 2.5 * GIB }]);
  });
});
