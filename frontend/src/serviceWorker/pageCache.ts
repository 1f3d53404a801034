/**
 * The pages' program in this browser, so that it starts without the server too: one cache for each build, with `index.html`
 * and every file that it loads. A page never mixes builds, because it starts either from the server or from one cache. Answers
 * of the API are not touched.
 */

/** What `vite.config.ts` writes into the service worker. */
export interface Build {
  /** Changes with any file. */
  id: string;
  /** Addresses of the files, without `index.html`. */
  files: readonly string[];
}

const PREFIX = "trainwright-pages-";
const INDEX = "/index.html";
const ASSETS = "/assets/";
const API = "/api/";
/** An open tab still loads files of the build from which it started. */
const KEPT_BUILDS = 2;
/** From here on a proxy or the server failed. */
const SERVER_FAILED = 500;

/** Stores all files of a build, or nothing. */
export async function storeBuild({ id, files }: Build): Promise<void> {
  await caches.delete(cacheName(id)); // so that the newest is the last of `caches.keys()`
  const cache = await caches.open(cacheName(id));
  try {
    await cache.addAll([new Request(new URL(INDEX, location.origin), { cache: "no-cache" }), ...files]);
  } catch (error) {
    await caches.delete(cacheName(id));
    throw error;
  }
}

/** Deletes all builds but the newest two. */
export async function deleteOldBuilds(): Promise<void> {
  const names = (await caches.keys()).filter((name) => name.startsWith(PREFIX));
  await Promise.all(names.slice(0, -KEPT_BUILDS).map((name) => caches.delete(name)));
}

/** The response to a request of a page; undefined if the browser is to make the request by itself. */
export function respond(request: Request, { id, files }: Build): Promise<Response> | undefined {
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET" || origin !== location.origin || pathname.startsWith(API)) return undefined;
  if (request.mode === "navigate") return fromServerOr(INDEX, request, id);
  // The name of a file in this folder contains a digest of its content.
  if (pathname.startsWith(ASSETS)) return fromAnyBuild(request);
  return files.includes(pathname) ? fromServerOr(pathname, request, id) : undefined;
}

async function fromAnyBuild(request: Request): Promise<Response> {
  return (await caches.match(request)) ?? fetch(request);
}

/** The server's response; while it does not respond, or fails, that of a build. */
async function fromServerOr(path: string, request: Request, id: string): Promise<Response> {
  const stored = async () => (await caches.open(cacheName(id))).match(path);
  let response: Response;
  try {
    response = await fetch(request);
  } catch (error) {
    const page = await stored();
    if (page === undefined) throw error;
    return page;
  }
  return response.status < SERVER_FAILED ? response : ((await stored()) ?? response);
}

function cacheName(id: string): string {
  return `${PREFIX}${id}`;
}
