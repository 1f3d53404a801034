import { fileURLToPath } from "node:url";
import tailwindcss from "@tailwindcss/vite";
import react from "@vitejs/plugin-react";
import { build, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

const api = process.env["TRAINWRIGHT_API"] ?? "http://127.0.0.1:8000";
const alias = { "@": fileURLToPath(new URL("./src", import.meta.url)) };

/** `src/ahead.ts` as a script of its own, which shares nothing with the program of the pages and is not kept waiting by it. */
function ahead(): Plugin {
  let address = "/src/ahead.ts";
  let type: { type?: string } = { type: "module" };
  return {
    name: "ahead",
    async generateBundle() {
      const input = fileURLToPath(new URL("./src/ahead.ts", import.meta.url));
      const made = await build({
        configFile: false,
        logLevel: "error",
        resolve: { alias },
        build: { write: false, rolldownOptions: { input, output: { format: "iife" } } },
      });
      const [script] = [made].flat().flatMap((one) => ("output" in one ? one.output : []));
      if (script?.type !== "chunk") throw new Error("src/ahead.ts made no script");
      address = `/${this.getFileName(this.emitFile({ type: "asset", name: "ahead.js", source: script.code }))}`;
      type = {};
    },
    transformIndexHtml: {
      order: "post",
      handler: () => [{ tag: "script", attrs: { ...type, src: address }, injectTo: "head-prepend" }],
    },
  };
}

export default defineConfig({
  plugins: [react(), tailwindcss(), ahead()],
  resolve: { alias },
  build: {
    outDir: "../backend/trainwright_backend/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    // What every first page needs is one file: a request costs more than what it brings.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "first", tags: ["$initial"] }] } } },
  },
  server: { proxy: { "/api": { target: api } } },
  test: {
    // Tests run in Node, which would be given the client for Node.
    alias: { "tus-js-client": fileURLToPath(new URL("./node_modules/tus-js-client/lib.esm/browser/index.js", import.meta.url)) },
    environment: "jsdom",
    setupFiles: ["tests/setup.ts"],
    include: ["tests/**/*.test.{ts,tsx}"],
    testTimeout: 30_000,
  },
});
