// The build of the page: one script and one style sheet, whose names carry the hash of what is in them.
import { defineConfig } from "vite";

export default defineConfig({
  base: "/ui/",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { outDir: "../app/api/ui", emptyOutDir: true, assetsInlineLimit: 0, modulePreload: false, target: "es2022" },
});
