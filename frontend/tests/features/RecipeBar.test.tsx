import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { RecipeBar } from "@/features/runs/RecipeBar";
import { renderRoute } from "../renderRoute";
import { server } from "../server";

it("tells recipes that could not be listed from a team that has none, and tries again", async () => {
  const recipe = { id: "rec_1", name: "night", spec: {}, problems: [], saved: "2026-11-21T13:00:00Z", saved_by: "ana" };
  server.use(
    http.get("*/recipes", () => HttpResponse.json({ code: "busy", detail: "The database is busy." }, { status: 503 }), { once: true }),
    http.get("*/recipes", () => HttpResponse.json([recipe])),
  );
  renderRoute(<RecipeBar team="lab" fields={[]} values={{}} spec={{}} onChoose={() => undefined} />);
  expect((await screen.findByRole("alert")).textContent).toContain("The recipes could not be listed. The database is busy.");
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByRole("option", { name: "night" })).toBeDefined();
  expect(screen.queryByRole("alert")).toBeNull();
});
