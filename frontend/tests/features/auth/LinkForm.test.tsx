import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { expect, it } from "vitest";
import { LinkForm } from "@/features/auth/LinkForm";
import { renderRoute } from "@tests/support/renderRoute";

it("shows the error of each field, and focuses the first one", async () => {
  const link = { purpose: "first_owner" as const, needs_account: true, email: null, team: null };
  renderRoute(<LinkForm token="t" link={link} onSignedIn={() => undefined} />);
  await userEvent.type(await screen.findByLabelText("Your name"), "Ada");
  await userEvent.type(screen.getByLabelText("Email"), "ada@example.org");
  await userEvent.type(screen.getByLabelText("Password"), "a long enough password");
  await userEvent.type(screen.getByLabelText("Team"), "My Team");
  await userEvent.click(screen.getByRole("button", { name: "Create account" }));
  expect(screen.getByText(/^Use 3 to 40 lower-case letters/)).toBeDefined();
  expect(document.activeElement).toBe(screen.getByLabelText("Team"));
  expect(screen.getByLabelText("Email").getAttribute("aria-invalid")).toBeNull();
});
