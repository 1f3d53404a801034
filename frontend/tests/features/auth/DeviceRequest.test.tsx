import { screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it, vi } from "vitest";
import { DeviceRequest } from "@/features/auth/device/DeviceRequest";
import { renderRoute } from "@tests/support/renderRoute";
import { server } from "@tests/support/server";

const ASKED = {
  user_code: "BCDF-GHJK",
  client: "trainwright on gpu-07",
  address: "192.0.2.7",
  scope: "submit",
  lifetime_days: 90,
  created: "2026-11-21T08:00:00Z",
  expires: "2026-11-21T08:10:00Z",
};

it.each([
  ["Approve", true, /^Approved\./],
  ["Deny", false, /^Denied\./],
] as const)("shows what a program asks for, and sends the decision: %s", async (button, approve, said) => {
  const sent: unknown[] = [];
  server.use(
    http.get("*/api/v1/me/device/bcdfghjk", () => HttpResponse.json(ASKED)),
    http.post("*/api/v1/me/device", async ({ request }) => {
      sent.push(await request.json());
      return new HttpResponse(null, { status: 204 });
    }),
  );
  renderRoute(<DeviceRequest code="bcdfghjk" onOther={() => undefined} />);
  for (const text of ["BCDF-GHJK", "trainwright on gpu-07", "192.0.2.7", /start and change runs/, "after 90 days"]) {
    expect(await screen.findByText(text)).toBeDefined();
  }
  await userEvent.click(screen.getByRole("button", { name: button }));
  expect((await screen.findByRole("status")).textContent).toMatch(said);
  expect(sent).toEqual([{ user_code: "bcdfghjk", approve }]);
  expect(screen.queryByRole("button")).toBeNull();
});

it("says that a code is unknown, and asks for another one", async () => {
  const onOther = vi.fn();
  server.use(
    http.get("*/api/v1/me/device/:code", () => HttpResponse.json({ status: 404, code: "unknown_code", detail: "No program waits with this code.", errors: [] }, { status: 404 })),
  );
  renderRoute(<DeviceRequest code="XXXX-XXXX" onOther={onOther} />);
  expect(await screen.findByText("No program waits with this code.")).toBeDefined();
  await userEvent.click(screen.getByRole("button", { name: "Enter another code" }));
  expect(onOther).toHaveBeenCalledOnce();
});
