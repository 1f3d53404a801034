/**
 * Installs the service worker, which starts the pages while the server does not respond, and moves open tabs to a new version of the
 * server: their next navigation reloads the application. Browsers offer service workers to pages from this machine or by HTTPS.
 */
import { router } from "@/app/router";
import { connection } from "@/lib/connection";

const SCRIPT = "/service-worker.js";
/** Storing the pages' files must not delay the first page. */
const SETTLE_MS = 3_000;

export function startServiceWorker(): void {
  if (!("serviceWorker" in navigator)) return;
  setTimeout(() => {
    navigator.serviceWorker.register(SCRIPT).then(followUpgrades, (error: unknown) => {
      console.warn("Without a service worker the pages do not open while the server is down.", error);
    });
  }, SETTLE_MS);
}

function followUpgrades(registration: ServiceWorkerRegistration): void {
  let isControlled = navigator.serviceWorker.controller !== null;
  let isUpgraded = false;
  navigator.serviceWorker.addEventListener("controllerchange", () => {
    isUpgraded = isControlled;
    isControlled = true;
  });
  router.subscribe("onBeforeNavigate", ({ toLocation, pathChanged }) => {
    // Uploads set this handler while they send.
    if (isUpgraded && pathChanged && window.onbeforeunload === null) window.location.assign(toLocation.href);
  });
  // A server that was away may be a new version, and a tab in the background misses that it was. If it went away during the first
  // installation, nothing is registered.
  let current = registration;
  const renew = async () => {
    if (current.active === null) current = await navigator.serviceWorker.register(SCRIPT);
    else await current.update();
  };
  const look = () => void renew().catch(() => undefined);
  let reconnects = connection.reconnects();
  connection.subscribe(() => {
    if (connection.reconnects() !== reconnects) look();
    reconnects = connection.reconnects();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") look();
  });
}
