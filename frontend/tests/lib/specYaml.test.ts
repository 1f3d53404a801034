import { describe, expect, it } from "vitest";
import type { Json } from "@/lib/specForm";
import { readYaml, rewritten, writeYaml } from "@/lib/specYaml";

const SPEC: Record<string, Json> = { name: "pilot", model: { width: 64, layers: 2 }, optimizer: { clip_norm: null, learning_rate: 1e-3 } };

describe("reading", () => {
  it("gives back what was written, in YAML and in JSON", () => {
    expect(readYaml(writeYaml(SPEC)).spec).toEqual(SPEC);
    expect(readYaml(JSON.stringify(SPEC, null, 2)).spec).toEqual(SPEC);
  });

  it("takes numbers as people write them, and words that look like truth as words", () => {
    expect(readYaml("rate: 1e-3\nbig: 3_0\nanswer: no\nday: 2026-11-22\n").spec).toEqual({ rate: 1e-3, big: "3_0", answer: "no", day: "2026-11-22" });
  });

  it("names the line of what cannot be read", () => {
    const { spec, faults } = readYaml("name: pilot\nmodel:\n  width: 64\n layers: 2\n");
    expect(spec).toBeNull();
    expect(faults[0]?.line).toBe(4);
    expect(readYaml("- name\n").faults[0]?.line).toBe(1);
  });

  it.each([
    ["a: 1\nb: 2\na: 3\n", 3, "stands twice"],
    ["model:\n\tlayers: 2\n\twidth: 64\n", 2, "begins with a tab"],
    ["model:\n  layers: 2\n   width: 64\n", 2, "more spaces"],
    ["model:\n  layers: 2\n width: 64\n", 3, "same number of spaces"],
    ["schedule:\n  steps 60\n  warmup_steps: 2\n", 2, "`name: value`"],
    ["schedule:\n  warmup_steps: 2\n  steps 60\n", 3, "`name: value`"],
    ["name: a: b\n", 1, "second colon"],
    ["a: [1, 2\nb: 3\n", 2, "is closed"],
    ["name: @home\n", 1, "quotation marks"],
    ["name: 'a\n", 2, "closing"],
  ])("says once, and in words of the spec, what is wrong with %j", (text, line, words) => {
    const { faults } = readYaml(text);
    expect(faults).toEqual([{ line, message: expect.stringContaining(words) as string }]);
    expect(faults[0]?.message).not.toMatch(/[Mm]apping|[Ii]mplicit|[Ff]low|block/);
  });

  it("takes a list of aliases that would grow without end for a fault, and makes nothing but plain data", () => {
    const bomb = ["a: &a [x, x, x, x, x, x, x, x, x]", ...["b", "c", "d", "e", "f"].map((key, index) => `${key}: &${key} [${Array(9).fill(`*${"abcde"[index] ?? ""}`).join(", ")}]`)].join("\n");
    expect(readYaml(bomb).faults[0]?.message).toContain("alias");
    expect(readYaml("a: &a {b: *a}\n").spec).toBeNull();
    expect(readYaml("name: !!js/function 'x'\n").spec).toEqual({ name: "x" });
    expect(readYaml("__proto__: {width: 1}\n").faults).toEqual([]);
    expect(({} as { width?: number }).width).toBeUndefined();
  });

  it("finds the line of a field, else of the nearest section around it", () => {
    const { lineOf } = readYaml("# head\nname: pilot\nmodel:\n  layers: 2\n  width: 63\n");
    expect(lineOf("model.width")).toBe(5);
    expect(lineOf("model.heads")).toBe(3);
    expect(lineOf("optimizer.learning_rate")).toBe(1);
  });
});

describe("writing", () => {
  it("begins with a line for the name", () => {
    expect(writeYaml({})).toBe("# What is left out keeps its default.\nname:\n");
    expect(readYaml(writeYaml({})).spec).toEqual({ name: null });
  });

  it("keeps comments and order of what did not change", () => {
    const text = "# for the night\nmodel:\n  width: 64 # small\n  layers: 2\nname: pilot\n";
    expect(rewritten(text, { name: "pilot", model: { width: 128, layers: 2 } })).toBe(
      "# for the night\nmodel:\n  width: 128 # small\n  layers: 2\nname: pilot\n",
    );
  });

  it("takes away what is gone, with the section that it leaves empty, and adds what is new", () => {
    const after = { name: "pilot", batch: { sequence_tokens: 64 } };
    const text = rewritten("name: pilot\nmodel:\n  width: 64\n", after);
    expect(readYaml(text).spec).toEqual(after);
    expect(text).not.toContain("model");
  });

  it("writes anew where the text cannot be kept", () => {
    for (const text of ["a: [", "- 1\n", "base: &b {width: 1}\nmodel: *b\n"]) {
      expect(readYaml(rewritten(text, SPEC)).spec).toEqual(SPEC);
    }
  });
});
