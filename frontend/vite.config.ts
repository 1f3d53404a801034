import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { build, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

const api = process.env["TRAINWRIGHT_API"] ?? "http://127.0.0.1:8000";
const alias = { "@": fileURLToPath(new URL("./src", import.meta.url)) };
const testsFolder = fileURLToPath(new URL("./tests", import.meta.url));

/** Builds `src/prefetch.ts` as a separate script that shares no chunk with the main bundle and does not wait for it. */
function prefetchScript(): Plugin {
  let address = "/src/prefetch.ts";
  let type: { type?: string } = { type: "module" };
  return {
    name: "prefetch",
    async generateBundle() {
      const input = fileURLToPath(new URL("./src/prefetch.ts", import.meta.url));
      const result = await build({
        configFile: false,
        logLevel: "error",
        resolve: { alias },
        build: { write: false, rolldownOptions: { input, output: { format: "iife" } } },
      });
      const [script] = [result].flat().flatMap((bundle) => ("output" in bundle ? bundle.output : []));
      if (script?.type !== "chunk") throw new Error("src/prefetch.ts produced no script");
      address = `/${this.getFileName(this.emitFile({ type: "asset", name: "prefetch.js", source: script.code }))}`;
      type = {};
    },
    transformIndexHtml: {
      order: "post",
      handler: () => [{ tag: "script", attrs: { ...type, src: address }, injectTo: "head-prepend" }],
    },
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), prefetchScript()],
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
    isolate: false,
    maxWorkers: "100%",
    setupFiles: ["tests/support/setup.ts"],
    include: ["tests/**/*.test.{ts,tsx}"],
    testTimeout: 120_000,
  },
});
