import { http, HttpResponse } from "msw";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { deleteOldBuilds, respond, storeBuild, type Build } from "@/serviceWorker/pageCache";
import { MemoryCaches } from "@tests/support/memoryCaches";
import { server } from "@tests/support/server";

/** Builds of a server that is upgraded: `index.html` names the file of its own build. */
const BUILDS = ["1", "2", "3"].map((id): Build => ({ id, files: [`/assets/index-${id}.js`, "/favicon.svg"] }));
const [FIRST, SECOND, THIRD] = BUILDS as [Build, Build, Build];

/** The build that the server has, or the status with which it fails; null: it does not respond. */
let served: Build | number | null;

beforeEach(() => {
  vi.stubGlobal("caches", new MemoryCaches());
  served = FIRST;
  server.use(
    http.get("*", ({ request }) => {
      if (served === null) return HttpResponse.error();
      if (typeof served === "number") return new HttpResponse("proxy", { status: served });
      const { pathname } = new URL(request.url);
      if (!pathname.startsWith("/assets/")) return new HttpResponse(`page ${served.id}`);
      return served.files.includes(pathname) ? new HttpResponse(`file ${served.id}`) : new HttpResponse(null, { status: 404 });
    }),
  );
});

afterEach(() => {
  vi.unstubAllGlobals();
});

function get(path: string, mode: RequestMode = "no-cors"): Request {
  return Object.defineProperty(new Request(new URL(path, location.origin)), "mode", { value: mode });
}

async function textOf(response: Promise<Response> | undefined): Promise<string | undefined> {
  return (await response)?.text();
}

function openPage(build: Build): Promise<string | undefined> {
  return textOf(respond(get("/lab/usage", "navigate"), build));
}

it.each([[null], [502], [503]])("opens a page from the stored build while the server gives %s, and from the server once it works", async (failure) => {
  await storeBuild(FIRST);
  served = failure;
  expect(await openPage(FIRST)).toBe("page 1");
  expect(await textOf(respond(get("/assets/index-1.js"), FIRST))).toBe("file 1");
  expect(await textOf(respond(get("/favicon.svg"), FIRST))).toBe("page 1");
  served = SECOND;
  expect(await openPage(FIRST)).toBe("page 2");
  served = 404;
  expect(await openPage(FIRST)).toBe("proxy");
});

it("keeps the files of the build before for open tabs, and deletes older ones", async () => {
  for (const build of BUILDS) {
    served = build;
    await storeBuild(build);
    await deleteOldBuilds();
  }
  expect(await openPage(THIRD)).toBe("page 3");
  served = null;
  expect(await openPage(THIRD)).toBe("page 3");
  expect(await textOf(respond(get("/assets/index-2.js"), THIRD))).toBe("file 2");
  await expect(respond(get("/assets/index-1.js"), THIRD)).rejects.toThrow();
});

it("stores a build whole or not at all, and asks the server for what it does not have", async () => {
  served = SECOND;
  await expect(storeBuild(FIRST)).rejects.toThrow("404");
  expect(await caches.keys()).toEqual([]);
  expect(await textOf(respond(get("/assets/index-2.js"), FIRST))).toBe("file 2");
  served = null;
  await expect(respond(get("/lab/usage", "navigate"), FIRST)).rejects.toThrow();
  served = 502;
  expect(await openPage(FIRST)).toBe("proxy");
});

it("leaves the API, changes, other sites and unknown files to the browser", () => {
  const elsewhere = new Request("https://example.org/assets/index-1.js");
  const change = new Request(new URL("/lab", location.origin), { method: "POST" });
  for (const request of [get("/api/v1/me"), get("/api/v1/teams/lab/audit/export", "navigate"), get("/robots.txt"), elsewhere, change]) {
    expect(respond(request, FIRST), request.url).toBeUndefined();
  }
});
