import { describe, expect, it } from "vitest";
import type { Json } from "@/features/runs/spec/specFields";
import { readYaml, updateYaml, writeYaml } from "@/features/runs/spec/specYaml";

const SPEC: Record<string, Json> = { name: "pilot", model: { width: 64, layers: 2 }, optimizer: { clip_norm: null, learning_rate: 1e-3 } };

describe("reading", () => {
  it("reads back what was written, as YAML and JSON", () => {
    expect(readYaml(writeYaml(SPEC)).spec).toEqual(SPEC);
    expect(readYaml(JSON.stringify(SPEC, null, 2)).spec).toEqual(SPEC);
  });

  it("parses numbers as people write them, and boolean-like words as text", () => {
    expect(readYaml("rate: 1e-3\nbig: 3_0\nanswer: no\nday: 2026-11-22\n").spec).toEqual({ rate: 1e-3, big: "3_0", answer: "no", day: "2026-11-22" });
  });

  it("reports the line of a syntax error", () => {
    const { spec, syntaxErrors } = readYaml("name: pilot\nmodel:\n  width: 64\n layers: 2\n");
    expect(spec).toBeNull();
    expect(syntaxErrors[0]?.line).toBe(4);
    expect(readYaml("- name\n").syntaxErrors[0]?.line).toBe(1);
  });

  it.each([
    ["a: 1\nb: 2\na: 3\n", 3, "appears twice"],
    ["model:\n\tlayers: 2\n\twidth: 64\n", 2, "starts with a tab"],
    ["model:\n  layers: 2\n   width: 64\n", 2, "indented more"],
    ["model:\n  layers: 2\n width: 64\n", 3, "same number of spaces"],
    ["schedule:\n  steps 60\n  warmup_steps: 2\n", 2, "`name: value`"],
    ["schedule:\n  warmup_steps: 2\n  steps 60\n", 3, "`name: value`"],
    ["name: a: b\n", 1, "second colon"],
    ["a: [1, 2\nb: 3\n", 2, "close every"],
    ["name: @home\n", 1, "quotation marks"],
    ["name: 'a\n", 2, "closing"],
  ])("explains once, in the spec's terms, what is wrong with %j", (text, line, words) => {
    const { syntaxErrors } = readYaml(text);
    expect(syntaxErrors).toEqual([{ line, message: expect.stringContaining(words) as string }]);
    expect(syntaxErrors[0]?.message).not.toMatch(/[Mm]apping|[Ii]mplicit|[Ff]low|block/);
  });

  it("rejects alias bombs, and produces only plain data", () => {
    const bomb = ["a: &a [x, x, x, x, x, x, x, x, x]", ...["b", "c", "d", "e", "f"].map((key, index) => `${key}: &${key} [${Array(9).fill(`*${"abcde"[index] ?? ""}`).join(", ")}]`)].join("\n");
    expect(readYaml(bomb).syntaxErrors[0]?.message).toContain("alias");
    expect(readYaml("a: &a {b: *a}\n").spec).toBeNull();
    expect(readYaml("name: !!js/function 'x'\n").spec).toEqual({ name: "x" });
    expect(readYaml("__proto__: {width: 1}\n").syntaxErrors).toEqual([]);
    expect(({} as { width?: number }).width).toBeUndefined();
  });

  it("finds the line of a field, else of its nearest section", () => {
    const { lineOf } = readYaml("# head\nname: pilot\nmodel:\n  layers: 2\n  width: 63\n");
    expect(lineOf("model.width")).toBe(5);
    expect(lineOf("model.heads")).toBe(3);
    expect(lineOf("optimizer.learning_rate")).toBe(1);
  });
});

describe("writing", () => {
  it("starts with a line for the name", () => {
    expect(writeYaml({})).toBe("# Fields that are left out keep their defaults.\nname:\n");
    expect(readYaml(writeYaml({})).spec).toEqual({ name: null });
  });

  it("keeps comments and order of unchanged parts", () => {
    const text = "# for the night\nmodel:\n  width: 64 # small\n  layers: 2\nname: pilot\n";
    expect(updateYaml(text, { name: "pilot", model: { width: 128, layers: 2 } })).toBe(
      "# for the night\nmodel:\n  width: 128 # small\n  layers: 2\nname: pilot\n",
    );
  });

  it("removes deleted fields and their empty sections, and adds new ones", () => {
    const after = { name: "pilot", batch: { sequence_tokens: 64 } };
    const text = updateYaml("name: pilot\nmodel:\n  width: 64\n", after);
    expect(readYaml(text).spec).toEqual(after);
    expect(text).not.toContain("model");
  });

  it("rewrites the text if it cannot be updated", () => {
    for (const text of ["a: [", "- 1\n", "base: &b {width: 1}\nmodel: *b\n"]) {
      expect(readYaml(updateYaml(text, SPEC)).spec).toEqual(SPEC);
    }
  });
});
