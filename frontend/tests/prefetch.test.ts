import { QueryClient } from "@tanstack/react-query";
import { http, HttpResponse } from "msw";
import { beforeEach, expect, test, vi } from "vitest";
import { api } from "@/api/client";
import { meQuery } from "@/features/auth/queries";
import { runsQuery } from "@/features/runs/queries";
import { server } from "@tests/support/server";

const asked: string[] = [];
let status = 200;

beforeEach(() => {
  asked.length = 0;
  status = 200;
  server.use(
    http.get("*/api/*", ({ request }) => {
      asked.push(new URL(request.url).pathname);
      return HttpResponse.json({ items: [] }, { status });
    }),
    http.post("*/api/*", () => HttpResponse.json({})),
  );
  history.replaceState(null, "", "/crew/runs");
  vi.resetModules();
});

async function begin(): Promise<QueryClient> {
  await import("@/prefetch");
  await Promise.all([...(window.prefetched?.values() ?? [])]);
  return new QueryClient();
}

test("prefetches exactly what the list of runs requests, and uses each response once", async () => {
  localStorage.setItem("trainwright.theme", "dark");
  const client = await begin();
  expect(asked.splice(0)).toEqual(["/api/v1/me", "/api/v1/teams/crew/runs"]);

  await client.query(meQuery);
  await client.infiniteQuery(runsQuery("crew", {}));
  expect(asked).toEqual([]);
  await client.query({ ...meQuery, staleTime: 0 });
  expect(asked).toEqual(["/api/v1/me"]);
  expect(document.documentElement.dataset["theme"]).toBe("dark");
});

test("repeats a failed prefetch", async () => {
  status = 401;
  const client = await begin();
  status = 200;
  await client.infiniteQuery(runsQuery("crew", {}));
  expect(asked).toEqual(["/api/v1/me", "/api/v1/teams/crew/runs", "/api/v1/teams/crew/runs"]);
});

test("discards prefetched responses on sign-in", async () => {
  const client = await begin();
  await api.POST("/api/v1/auth/sign-in", { body: { email: "ada@example.org", password: "a long enough one" } });
  await client.query(meQuery);
  expect(asked).toEqual(["/api/v1/me", "/api/v1/teams/crew/runs", "/api/v1/me"]);
});
