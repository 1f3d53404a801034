import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { DeleteWithText } from "@/components/DeleteWithText";
import { renderRoute } from "@tests/support/renderRoute";

it("deletes only after the text was typed, and shows why a deletion was refused", async () => {
  const onDelete = vi.fn<(typed: string) => Promise<void>>().mockRejectedValueOnce(new Error("Runs have not ended.")).mockResolvedValue();
  renderRoute(<DeleteWithText title="Delete team" consequence="All of it." label="Type lab to confirm" type="text" isReady={(typed) => typed === "lab"} onDelete={onDelete} />);
  await userEvent.click(await screen.findByRole("button", { name: "Delete team…" }));
  const confirm = screen.getByRole<HTMLButtonElement>("button", { name: "Delete team", hidden: true });
  expect(confirm.disabled).toBe(true);
  await userEvent.type(screen.getByLabelText("Type lab to confirm"), "lab");
  await userEvent.click(confirm);
  expect(await screen.findByText(/Runs have not ended/)).toBeDefined();
  await userEvent.click(confirm);
  await waitFor(() => {
    expect(onDelete.mock.calls.map(([typed]) => typed)).toEqual(["lab", "lab"]);
  });
});
