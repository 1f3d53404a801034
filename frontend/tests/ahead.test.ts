import { http, HttpResponse } from "msw";
import { expect, test } from "vitest";
import { meQuery } from "@/features/auth/queries";
import { runsQuery } from "@/features/runs/queries";
import { QueryClient } from "@tanstack/react-query";
import { server } from "./server";

test("what is asked for ahead is what the list of runs asks for", async () => {
  const asked: string[] = [];
  server.use(
    http.get("*/api/*", ({ request }) => {
      asked.push(request.url);
      return HttpResponse.json({ items: [] });
    }),
  );
  const client = new QueryClient();
  await client.query(meQuery);
  await client.infiniteQuery(runsQuery("crew", {}));
  localStorage.setItem("trainwright.theme", "dark");
  history.replaceState(null, "", "/crew/runs");

  await import("@/ahead");

  const links = [...document.head.querySelectorAll("link")];
  expect(links.map(({ href }) => href)).toEqual(asked);
  expect(links.map(({ rel, crossOrigin }) => `${rel} ${crossOrigin ?? ""}`)).toEqual(["preload anonymous", "preload anonymous"]);
  expect(document.documentElement.dataset["theme"]).toBe("dark");
});
