import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { RetentionDialog } from "@/features/checkpoints/RetentionDialog";
import { renderRoute } from "../renderRoute";

it("says which runs keep states in any case, and that a failed one may be left with none", async () => {
  renderRoute(<RetentionDialog team="lab" runs={null} onClose={() => undefined} />);
  const field = await screen.findByLabelText("Newest states to keep of each run");
  const help = document.getElementById(field.getAttribute("aria-describedby") ?? "")?.textContent ?? "";
  expect(help).toMatch(/^A run that has not ended keeps two in any case\. With 0, one that has ended loses every state/);
  expect(help).toContain("failed");
});
