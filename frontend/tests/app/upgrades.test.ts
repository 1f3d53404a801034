import { act } from "@testing-library/react";
import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { router } from "@/app/router";
import { startServiceWorker } from "@/app/upgrades";
import { connection } from "@/lib/connection";
import { openApp } from "@tests/support/app";
import { server } from "@tests/support/server";

const ME = { id: "u_1", name: "Ada", email: "ada@example.org", site_admin: false, teams: [{ slug: "lab", name: "lab", role: "owner" }] };
const MISSING = { title: "Not found", status: 404, code: "not_found", detail: "There is no such page." };

const update = vi.fn(() => Promise.resolve());
const register = vi.fn();
const workers = Object.assign(new EventTarget(), { controller: {}, register });
const assign = vi.fn();

beforeEach(() => {
  update.mockClear();
  register.mockReset().mockResolvedValue({ active: {}, update });
  assign.mockClear();
  Object.defineProperty(navigator, "serviceWorker", { value: workers, configurable: true });
  server.use(
    http.get("*/api/v1/me", () => HttpResponse.json(ME)),
    http.get("*/api/v1/*", () => HttpResponse.json(MISSING, { status: 404 })),
  );
});

afterEach(() => {
  window.onbeforeunload = null;
  vi.unstubAllGlobals();
  Reflect.deleteProperty(navigator, "serviceWorker");
});

function navigate(path: string): Promise<void> {
  return act(async () => {
    router.history.push(path);
    await router.load();
  });
}

it("loads the next page anew after an upgrade, but not while files are being sent", async () => {
  connection.restored(); // other tests lose it
  vi.useFakeTimers();
  startServiceWorker();
  await vi.advanceTimersByTimeAsync(10_000);
  vi.useRealTimers();
  await openApp("/lab/queue");
  vi.stubGlobal("location", { href: window.location.href, origin: window.location.origin, assign });

  await navigate("/lab/usage");
  expect(assign).not.toHaveBeenCalled();
  connection.lost();
  expect(update).not.toHaveBeenCalled();
  connection.restored();
  expect(update).toHaveBeenCalledTimes(1);

  workers.dispatchEvent(new Event("controllerchange"));
  window.onbeforeunload = () => undefined;
  await navigate("/lab/queue");
  expect(assign).not.toHaveBeenCalled();
  window.onbeforeunload = null;
  await navigate("/lab/usage?period=week");
  expect(assign).toHaveBeenLastCalledWith("/lab/usage?period=week");
});

it("installs the service worker once the server is back, if it went away during the installation", async () => {
  connection.restored();
  const lateUpdate = vi.fn(() => Promise.resolve());
  register.mockReset().mockResolvedValueOnce({ active: null, update }).mockResolvedValue({ active: {}, update: lateUpdate });
  vi.useFakeTimers();
  startServiceWorker();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(register).toHaveBeenCalledTimes(1);
  for (const registered of [2, 2]) {
    connection.lost();
    connection.restored();
    await vi.advanceTimersByTimeAsync(0);
    expect(register).toHaveBeenCalledTimes(registered);
  }
  vi.useRealTimers();
  expect(lateUpdate).toHaveBeenCalledTimes(1);
});
