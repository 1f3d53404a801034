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
  await userEvent.click(create);
  expect(screen.getAllByText("This field is required.")).toHaveLength(2);
  await userEvent.type(screen.getByLabelText("Name"), "Speech");
  await userEvent.type(screen.getByLabelText("Short name"), "speech");
  await userEvent.click(create);
  await waitFor(() => {
    expect(onCreated).toHaveBeenCalledWith("speech");
  });
  expect(sent).toEqual([{ slug: "speech", name: "Speech" }]);
});

it("shows at its field that a short name is taken, until it is changed", async () => {
  const detail = "A team 'speech' exists already. Choose another short name.";
  const refusal = { title: "Conflict", status: 409, code: "slug_taken", detail, errors: [{ field: "slug", message: detail, value: "speech" }] };
  server.use(http.post("*/api/v1/teams", () => HttpResponse.json(refusal, { status: 409 })));
  renderRoute(<NewTeamForm onCreated={() => Promise.resolve()} />);
  await userEvent.type(await screen.findByLabelText("Name"), "Speech");
  const slug = screen.getByLabelText("Short name");
  await userEvent.type(slug, "speech");
  await userEvent.click(screen.getByRole("button", { name: "Create team" }));
  const shown = await screen.findByText(detail);
  expect(slug.getAttribute("aria-describedby")?.split(" ")).toContain(shown.id);
  expect(screen.queryByRole("alert")).toBeNull();
  await userEvent.type(slug, "-2");
  expect(screen.queryByText(detail)).toBeNull();
});
