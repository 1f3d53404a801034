/** The service worker. It takes over at once: pages that started from an older build still find their files. */
import { deleteOldBuilds, respond, storeBuild, type Build } from "@/serviceWorker/pageCache";

declare const self: ServiceWorkerGlobalScope;
declare const BUILD: Build;

self.addEventListener("install", (event) => {
  event.waitUntil(storeBuild(BUILD).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  event.waitUntil(deleteOldBuilds().then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const response = respond(event.request, BUILD);
  if (response !== undefined) event.respondWith(response);
});
