import { screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { RunTabs } from "@/app/routes/run/RunTabs";
import { renderRoute } from "@tests/support/renderRoute";

afterEach(() => {
  vi.restoreAllMocks();
});

it("scrolls to the current tab where not all tabs fit", async () => {
  vi.spyOn(Element.prototype, "clientWidth", "get").mockReturnValue(300);
  vi.spyOn(HTMLElement.prototype, "offsetWidth", "get").mockReturnValue(100);
  vi.spyOn(HTMLElement.prototype, "offsetLeft", "get").mockReturnValue(500);
  renderRoute(<RunTabs team="lab" runId="run_1" current="configuration" hidden={[]} />);
  expect((await screen.findByRole("navigation", { name: "Parts of the run" })).scrollLeft).toBe(400);
});
