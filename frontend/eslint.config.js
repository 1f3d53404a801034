import { readdirSync } from "node:fs";

import js from "@eslint/js";
import a11y from "eslint-plugin-jsx-a11y";
import hooks from "eslint-plugin-react-hooks";
import ts from "typescript-eslint";

const basePath = import.meta.dirname;

/** A feature imports shared code only; routes put features together. */
const features = readdirSync(new URL("src/features", import.meta.url));
const arrows = [
  ...features.map((name) => ({
    basePath,
    files: [`src/features/${name}/**`],
    rules: {
      "no-restricted-imports": [
        "error",
        { patterns: [`@/app/*`, ...features.filter((other) => other !== name).map((other) => `@/features/${other}/*`)] },
      ],
    },
  })),
  {
    basePath,
    files: ["src/components/**", "src/lib/**", "src/api/**"],
    rules: { "no-restricted-imports": ["error", { patterns: ["@/features/*", "@/app/*"] }] },
  },
];

/** As in the server's messages, beside which the pages' texts are. */
const straightApostrophes = ["Literal[value=/’/]", "JSXText[value=/’/]", "TemplateElement[value.raw=/’/]"].map((selector) => ({
  selector,
  message: "Write the apostrophe as '.",
}));

export default ts.config(
  { basePath, ignores: ["node_modules", "src/api/schema.d.ts", "eslint.config.js"] },
  // What a run of the browser tests leaves.
  { ignores: ["**/test-results/"] },
  js.configs.recommended,
  ts.configs.strictTypeChecked,
  a11y.flatConfigs.strict,
  hooks.configs.flat["recommended-latest"],
  {
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: basePath } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      // The router's way to redirect is to throw.
      "@typescript-eslint/only-throw-error": ["error", { allow: [{ from: "package", package: "@tanstack/router-core", name: "Redirect" }] }],
      // What scrolls must be reachable by keyboard.
      "jsx-a11y/no-noninteractive-tabindex": ["error", { roles: ["region"], tags: ["main"] }],
      // Dropping files is a short cut; the button beside it is the way of the keyboard.
      "jsx-a11y/no-noninteractive-element-interactions": [
        "error",
        { handlers: ["onClick", "onMouseDown", "onMouseUp", "onKeyPress", "onKeyDown", "onKeyUp"] },
      ],
      // uPlot's enums exist in its types only.
      "@typescript-eslint/no-unsafe-enum-assignment": "off",
      // It tells what a compiler that is not used here would skip.
      "react-hooks/incompatible-library": "off",
      "jsx-a11y/label-has-associated-control": ["error", { assert: "either" }],
      "no-restricted-syntax": ["error", ...straightApostrophes],
    },
  },
  ...arrows,
);
