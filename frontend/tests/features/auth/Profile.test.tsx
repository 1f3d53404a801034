import { screen, waitFor, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import { Profile } from "@/features/auth/Profile";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const me = { id: "user_1", name: "Ada", email: "ada@example.org", email_verified: true, has_password: true, service: false, site_admin: false, teams: [] };

it("changes the name, and sends nothing that is empty or the same", async () => {
  const sent: unknown[] = [];
  server.use(
    http.patch("*/api/v1/me", async ({ request }) => {
      sent.push(await request.json());
      return HttpResponse.json({ ...me, name: "Ada Lovelace" });
    }),
  );
  renderRoute(<Profile me={me} />);
  const field = await screen.findByLabelText("Your name");
  const save = screen.getByRole<HTMLButtonElement>("button", { name: /^Save ?your name$/ });
  expect(save.disabled).toBe(true);
  await userEvent.clear(field);
  await userEvent.click(save);
  expect(screen.getByText("This field is required.")).toBeDefined();
  expect(sent).toEqual([]);
  await userEvent.type(field, " Ada Lovelace ");
  await userEvent.click(save);
  await waitFor(() => {
    expect(sent).toEqual([{ name: "Ada Lovelace" }]);
  });
});

it("changes the password, with each refusal at its field", async () => {
  const sent: unknown[] = [];
  server.use(
    http.post("*/api/v1/me/password", async ({ request }) => {
      const body = (await request.json()) as { current_password: string };
      sent.push(body);
      if (body.current_password === "right password") return new HttpResponse(null, { status: 204 });
      const errors = [{ field: "current_password", message: "This is not your current password.", value: null }];
      return HttpResponse.json({ status: 422, code: "invalid", detail: "", errors }, { status: 422 });
    }),
  );
  renderRoute(<Profile me={me} />);
  await userEvent.click(await screen.findByRole("button", { name: "Change password…" }));
  const dialog = within(screen.getByRole("dialog"));
  const submit = dialog.getByRole("button", { name: "Change password" });
  const current = dialog.getByLabelText<HTMLInputElement>("Current password");
  await userEvent.type(dialog.getByLabelText("New password"), "a new password");
  await userEvent.type(dialog.getByLabelText("New password again"), "another password");
  await userEvent.click(submit);
  expect(dialog.getByText("Enter your current password.")).toBeDefined();
  expect(dialog.getByText(/^This differs from the new password/)).toBeDefined();
  expect(document.activeElement).toBe(current);
  expect(sent).toEqual([]);
  await userEvent.clear(dialog.getByLabelText("New password again"));
  await userEvent.type(dialog.getByLabelText("New password again"), "a new password");
  await userEvent.type(current, "wrong password");
  await userEvent.click(submit);
  expect(await dialog.findByText("This is not your current password.")).toBeDefined();
  expect(current.getAttribute("aria-invalid")).toBe("true");
  await userEvent.clear(current);
  await userEvent.type(current, "right password");
  await userEvent.click(submit);
  expect(await screen.findByText("Password changed. Other browsers are signed out.")).toBeDefined();
  expect(screen.queryByRole("dialog")).toBeNull();
  expect(sent.at(-1)).toEqual({ current_password: "right password", password: "a new password" });
});

it("offers to mail a link that confirms an unconfirmed address", async () => {
  const sent: unknown[] = [];
  server.use(
    http.post("*/api/v1/auth/mailed-link", async ({ request }) => {
      sent.push(await request.json());
      if (sent.length > 1) return HttpResponse.json(null, { status: 202 });
      return HttpResponse.json({ status: 409, code: "no_mail", detail: "This installation sends no email.", errors: [] }, { status: 409 });
    }),
  );
  renderRoute(<Profile me={{ ...me, email_verified: false }} />);
  const button = await screen.findByRole("button", { name: "Email me a sign-in link" });
  await userEvent.click(button);
  expect(await screen.findByText("This installation sends no email.")).toBeDefined();
  await userEvent.click(button);
  expect(await screen.findByText(/^A link is on its way/)).toBeDefined();
  expect(sent).toEqual([{ email: "ada@example.org" }, { email: "ada@example.org" }]);
});

it("names the operator if the installation sends no email", async () => {
  server.use(http.get("*/api/v1/health", () => HttpResponse.json({ status: "ok", sends_mail: false })));
  renderRoute(<Profile me={{ ...me, email_verified: false }} />);
  expect(await screen.findByText(/^Ask the operator for a sign-in link/)).toBeDefined();
  expect(screen.queryByRole("button", { name: "Email me a sign-in link" })).toBeNull();
});

it("does not ask to confirm a confirmed address", async () => {
  renderRoute(<Profile me={me} />);
  await screen.findByLabelText("Your name");
  expect(screen.queryByRole("button", { name: "Email me a sign-in link" })).toBeNull();
});

it("offers no new password to an account that has none", async () => {
  renderRoute(<Profile me={{ ...me, has_password: false }} />);
  expect(await screen.findByText("Your account has no password.")).toBeDefined();
  expect(screen.queryByRole("button", { name: "Change password…" })).toBeNull();
});

it("shows the theme below the other settings, not at the far edge of the panel", async () => {
  renderRoute(<Profile me={me} />);
  const theme = await screen.findByLabelText("Theme");
  expect(theme.closest(".flex-col.tablet\\:w-96")).not.toBeNull();
});
