import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  base: "./",
  plugins: [svelte()],
  resolve: {
    alias: { "@runwire/client": at("../sdk/typescript/src/index.ts") },
    dedupe: ["eventsource-parser"], // The SDK's sources lie outside, and are read with what is installed here.
  },
  // The page lies at `/playground`, without a slash at its end, so its files are below that name; files find each other.
  experimental: {
    renderBuiltUrl: (name, { hostType }) => (hostType === "html" ? `playground/${name}` : { relative: true }),
  },
  build: {
    outDir: at("../services/gateway/playground"),
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 800,
    license: { fileName: "licences.md" },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8080", "/chat": "http://127.0.0.1:8080" } },
});
