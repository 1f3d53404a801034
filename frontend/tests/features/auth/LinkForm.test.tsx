import { screen, waitFor } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { LinkForm } from "@/features/auth/LinkForm";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

it("shows the error of each field, and focuses the first one", async () => {
  const link = { purpose: "first_owner" as const, needs_account: true, needs_password: false, email: null, team: null };
  renderRoute(<LinkForm token="t" link={link} onSignedIn={() => undefined} />);
  await userEvent.type(await screen.findByLabelText("Your name"), "Ada");
  await userEvent.type(screen.getByLabelText("Email"), "ada@example.org");
  await userEvent.type(screen.getByLabelText("Password"), "a long enough password");
  await userEvent.type(screen.getByLabelText("Team"), "My 1st_Team-");
  await userEvent.click(screen.getByRole("button", { name: "Create account" }));
  expect(screen.getByLabelText<HTMLInputElement>("Team").value).toBe("my-1st-team-");
  expect(screen.getByText(/^Use 3 to 40 lowercase letters/)).toBeDefined();
  expect(screen.queryByText(/^Short name of your first team/)).toBeNull();
  expect(document.activeElement).toBe(screen.getByLabelText("Team"));
  expect(screen.getByLabelText("Email").getAttribute("aria-invalid")).toBeNull();
});

it("shows what the server refuses at its field only", async () => {
  server.use(
    http.post("*/api/v1/auth/link", () =>
      HttpResponse.json(
        { code: "invalid", detail: "password: This password is easy to guess.", errors: [{ field: "password", message: "This password is easy to guess." }] },
        { status: 422 },
      ),
    ),
  );
  const link = { purpose: "invitation" as const, needs_account: true, needs_password: false, email: "ada@example.org", team: "crew" };
  renderRoute(<LinkForm token="t" link={link} onSignedIn={() => undefined} />);
  await userEvent.type(await screen.findByLabelText("Your name"), "Ada");
  await userEvent.type(screen.getByLabelText("Password"), "password12");
  await userEvent.click(screen.getByRole("button", { name: "Create account" }));
  expect(await screen.findByText("This password is easy to guess.")).toBeDefined();
  expect(screen.queryByText(/^password:/)).toBeNull();
});

const SIGN_IN = { purpose: "sign_in" as const, needs_account: false, needs_password: false, email: "ada@example.org", team: null };

function receive(): unknown[] {
  const received: unknown[] = [];
  server.use(
    http.post("*/api/v1/auth/link", async ({ request }) => {
      received.push(await request.json());
      return HttpResponse.json({ id: "user_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [] });
    }),
  );
  return received;
}

it("sets a new password with a sign-in link, if one is entered", async () => {
  const received = receive();
  renderRoute(<LinkForm token="t" link={SIGN_IN} onSignedIn={() => undefined} />);
  const field = await screen.findByLabelText("New password (optional)");
  await userEvent.type(field, "too short");
  await userEvent.click(screen.getByRole("button", { name: "Set password and sign in" }));
  expect(screen.getByText("Enter at least 10 characters.")).toBeDefined();
  expect(received).toEqual([]);
  await userEvent.type(field, ", but not now");
  await userEvent.click(screen.getByRole("button", { name: "Set password and sign in" }));
  await waitFor(() => {
    expect(received).toEqual([{ token: "t", password: "too short, but not now" }]);
  });
});

it("keeps the password if the field of a sign-in link stays empty", async () => {
  const received = receive();
  renderRoute(<LinkForm token="t" link={SIGN_IN} onSignedIn={() => undefined} />);
  await userEvent.click(await screen.findByRole("button", { name: "Sign in" }));
  await waitFor(() => {
    expect(received).toEqual([{ token: "t" }]);
  });
});

it("requires a new password for an account whose address was never confirmed", async () => {
  const received = receive();
  renderRoute(<LinkForm token="t" link={{ ...SIGN_IN, needs_password: true }} onSignedIn={() => undefined} />);
  const field = await screen.findByLabelText("New password");
  await userEvent.click(screen.getByRole("button", { name: "Set password and sign in" }));
  expect(document.activeElement).toBe(field);
  expect(received).toEqual([]);
});
