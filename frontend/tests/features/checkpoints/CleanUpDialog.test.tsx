import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { CleanUpDialog } from "@/features/checkpoints/CleanUpDialog";
import { renderRoute } from "@tests/support/renderRoute";

it("explains which runs always keep states, and that a failed run may lose all of them", async () => {
  renderRoute(<CleanUpDialog team="lab" runs={null} onClose={() => undefined} />);
  const field = await screen.findByLabelText("Newest states to keep per run");
  const help = document.getElementById(field.getAttribute("aria-describedby") ?? "")?.textContent ?? "";
  expect(help).toMatch(/^A run that has not ended always keeps two\. With 0, an ended run loses every state/);
  expect(help).toContain("failed");
});
