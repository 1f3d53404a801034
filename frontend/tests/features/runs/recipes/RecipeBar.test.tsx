import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { RecipeBar } from "@/features/runs/recipes/RecipeBar";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("distinguishes recipes that failed to load from a team without any, and retries", async () => {
  const recipe = { id: "rec_1", name: "night", spec: {}, problems: [], saved: "2026-11-21T13:00:00Z", saved_by: "ana" };
  server.use(
    http.get("*/recipes", () => HttpResponse.json({ code: "busy", detail: "The database is busy." }, { status: 503 }), { once: true }),
    http.get("*/recipes", () => HttpResponse.json({ items: [recipe] })),
  );
  renderRoute(<RecipeBar team="lab" fields={[]} values={{}} spec={{}} onChoose={() => undefined} />);
  expect((await screen.findByRole("alert")).textContent).toContain("Could not load the recipes. The database is busy.");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByRole("option", { name: "night" })).toBeDefined();
  expect(screen.queryByRole("alert")).toBeNull();
});
