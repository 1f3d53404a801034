import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { CleanUpDialog } from "@/features/checkpoints/CleanUpDialog";
import { renderRoute } from "@tests/support/renderRoute";

it("explains which runs always keep checkpoints, and that a failed run may lose all of them", async () => {
  renderRoute(<CleanUpDialog team="lab" runs={null} onClose={() => undefined} />);
  const field = await screen.findByLabelText("Newest checkpoints to keep per run");
  const help = document.getElementById(field.getAttribute("aria-describedby") ?? "")?.textContent ?? "";
  expect(help).toMatch(/^Unfinished runs always keep two\. With 0, ended runs keep none/);
  expect(help).toContain("failed");
});
