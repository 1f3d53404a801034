import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { build, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

const api = process.env["TRAINWRIGHT_API"] ?? "http://127.0.0.1:8000";
const alias = { "@": fileURLToPath(new URL("./src", import.meta.url)) };
const testsFolder = fileURLToPath(new URL("./tests", import.meta.url));

/** Bundles a script that shares no chunk with the main bundle. */
async function bundleScript(path: string, define: Record<string, string> = {}): Promise<string> {
  const input = fileURLToPath(new URL(path, import.meta.url));
  const result = await build({
    configFile: false,
    publicDir: false,
    logLevel: "error",
    resolve: { alias },
    define,
    build: { write: false, rolldownOptions: { input, output: { format: "iife" } } },
  });
  const [script] = [result].flat().flatMap((bundle) => ("output" in bundle ? bundle.output : []));
  if (script?.type !== "chunk") throw new Error(`${path} produced no script`);
  return script.code;
}

/** Builds `src/prefetch.ts` as a separate script that does not wait for the main bundle. */
function prefetchScript(): Plugin {
  let address = "/src/prefetch.ts";
  let type: { type?: string } = { type: "module" };
  return {
    name: "prefetch",
    async generateBundle() {
      const source = await bundleScript("./src/prefetch.ts");
      address = `/${this.getFileName(this.emitFile({ type: "asset", name: "prefetch.js", source }))}`;
      type = {};
    },
    transformIndexHtml: {
      order: "post",
      handler: () => [{ tag: "script", attrs: { ...type, src: address }, injectTo: "head-prepend" }],
    },
  };
}

/** Other characters than Latin ones are seldom needed without the server. */
const SELDOM_USED = /-(cyrillic|greek|vietnamese|latin-ext)\b.*\.woff2$/;

/** Builds `src/serviceWorker/main.ts`, which knows the files of the build. */
function serviceWorker(): Plugin {
  return {
    name: "service-worker",
    apply: "build",
    writeBundle: {
      order: "post",
      async handler({ dir = "" }) {
        const paths = readdirSync(dir, { recursive: true, withFileTypes: true })
          .filter((entry) => entry.isFile())
          .map(({ parentPath, name }) => relative(dir, join(parentPath, name)))
          .sort();
        const digest = createHash("sha256");
        for (const path of paths) digest.update(path).update(readFileSync(join(dir, path)));
        const files = paths.filter((path) => path !== "index.html" && !SELDOM_USED.test(path)).map((path) => `/${path}`);
        const BUILD = JSON.stringify({ id: digest.digest("hex").slice(0, 16), files });
        writeFileSync(join(dir, "service-worker.js"), await bundleScript("./src/serviceWorker/main.ts", { BUILD }));
      },
    },
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), prefetchScript(), serviceWorker()],
  resolve: { alias },
  build: {
    outDir: "../backend/trainwright_backend/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    // What every first page needs is one file: an extra request costs more than the bytes it saves.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "first", tags: ["$initial"] }] } } },
  },
  server: { proxy: { "/api": { target: api } } },
  test: {
    // Tests run in Node, which would otherwise resolve the client for Node.
    alias: {
      "@tests": testsFolder,
      "tus-js-client": fileURLToPath(new URL("./node_modules/tus-js-client/lib.esm/browser/index.js", import.meta.url)),
    },
    environment: "jsdom",
    maxWorkers: "100%",
    setupFiles: ["tests/support/setup.ts"],
    testTimeout: 300_000,
    projects: [
      { extends: true, test: { name: "parts", include: ["tests/**/*.test.{ts,tsx}"], exclude: ["tests/app/**"], isolate: false } },
      // The router keeps the page that the last test left, and a load that it had begun.
      { extends: true, test: { name: "app", include: ["tests/app/**/*.test.{ts,tsx}"] } },
    ],
  },
});
