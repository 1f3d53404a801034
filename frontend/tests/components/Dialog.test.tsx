import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { useState } from "react";
import { afterEach, expect, it, vi } from "vitest";
import { Dialog } from "@/components/Dialog";
import { Menu } from "@/components/Menu";
import { MenuAction } from "@/components/MenuAction";
import { renderRoute } from "@tests/support/renderRoute";

afterEach(() => {
  vi.restoreAllMocks();
});

function MenuWithDialog() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Menu trigger={<button type="button">More</button>}>
        <MenuAction
          onSelect={() => {
            setOpen(true);
          }}
        >
          Rename
        </MenuAction>
      </Menu>
      {open && (
        <Dialog
          title="New name"
          actions={
            <button
              type="button"
              onClick={() => {
                setOpen(false);
              }}
            >
              Cancel
            </button>
          }
          onClose={() => undefined}
        >
          text
        </Dialog>
      )}
    </>
  );
}

// The browser gives the focus back to the element that had it, if the dialog is closed while it is in the page.
it("opens from a menu's button, and closes before it leaves the page", async () => {
  const steps: unknown[] = [];
  vi.spyOn(HTMLDialogElement.prototype, "showModal").mockImplementation(function (this: HTMLDialogElement) {
    this.open = true;
    steps.push(`opened from ${document.activeElement?.textContent ?? ""}`);
  });
  vi.spyOn(HTMLDialogElement.prototype, "close").mockImplementation(function (this: HTMLDialogElement) {
    steps.push(this.isConnected ? "closed" : "removed");
  });
  renderRoute(<MenuWithDialog />);
  await userEvent.click(await screen.findByRole("button", { name: "More" }));
  await userEvent.click(await screen.findByRole("menuitem", { name: "Rename" }));
  await userEvent.click(screen.getByRole("button", { name: "Cancel" }));
  expect(steps).toEqual(["opened from More", "closed"]);
});
