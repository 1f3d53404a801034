import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it, vi } from "vitest";
import { NewTeamForm } from "@/features/teams/NewTeamForm";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("creates a team with a name and a short name", async () => {
  const sent: unknown[] = [];
  server.use(
    http.post("*/api/v1/teams", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ slug: "speech", name: "Speech", quota: [], storage: { used_bytes: 0, limit_bytes: 1 } }, { status: 201 });
    }),
  );
  const onCreated = vi.fn(() => Promise.resolve());
  renderRoute(<NewTeamForm onCreated={onCreated} />);
  const create = await screen.findByRole<HTMLButtonElement>("button", { name: "Create team" });
  expect(create.disabled).toBe(true);
  await userEvent.type(screen.getByLabelText("Name"), "Speech");
  await userEvent.type(screen.getByLabelText("Short name"), "speech");
  await userEvent.click(create);
  await waitFor(() => {
    expect(onCreated).toHaveBeenCalledWith("speech");
  });
  expect(sent).toEqual([{ slug: "speech", name: "Speech" }]);
});
