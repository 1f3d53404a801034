import { cleanup, configure } from "@testing-library/react";
import { afterAll, afterEach, beforeAll } from "vitest";
import { queryClient } from "@/app/queryClient";
import { connection } from "@/lib/connection";
import { server } from "@tests/support/server";

// Test machines are busy.
configure({ asyncUtilTimeout: 100_000 });

// Browser features that jsdom lacks.
window.matchMedia = (query) =>
  Object.assign(new EventTarget(), {
    matches: false,
    media: query,
    onchange: null,
    addListener: () => undefined,
    removeListener: () => undefined,
  });
window.scrollTo = () => undefined;
window.ResizeObserver = class {
  observe = () => undefined;
  unobserve = () => undefined;
  disconnect = () => undefined;
};
HTMLDialogElement.prototype.showModal = function () {
  this.open = true;
};
HTMLDialogElement.prototype.close = function () {
  this.open = false;
};
Object.assign(window, {
  Path2D: function Path2D() {
    return unseen;
  },
});
Object.assign(document, { fonts: { status: "loaded" } });
HTMLCanvasElement.prototype.getContext = (() => unseen) as unknown as HTMLCanvasElement["getContext"];

function nothing(): void {
  // draws nowhere
}

/** A drawing context that draws nothing; the browser tests check the drawings. */
const unseen = new Proxy<Record<string | symbol, unknown>>({}, {
  get: (kept, name) => kept[name] ?? drawing(name),
  set: (kept, name, value) => {
    kept[name] = value;
    return true;
  },
});

function drawing(name: string | symbol): unknown {
  if (name === "measureText") return (text: string) => ({ width: 6 * text.length });
  if (name === "createImageData") return (width: number, height: number) => ({ data: new Uint8ClampedArray(4 * width * height) });
  return nothing;
}

beforeAll(() => {
  server.listen({ onUnhandledRequest: "error" });
});
afterEach(() => {
  cleanup();
  server.resetHandlers();
  // Most test files share modules and the window, because creating a window for each took most of the time.
  connection.restored();
  queryClient.clear();
  sessionStorage.clear();
  localStorage.clear();
  window.history.replaceState(null, "", "/");
});
afterAll(() => {
  server.close();
});
