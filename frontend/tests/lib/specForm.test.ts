import { describe, expect, it } from "vitest";
import { label, sectionsOf, specOf, valuesOf, type JsonSchema } from "@/lib/specForm";

const SCHEMA: JsonSchema = {
  required: ["name", "data"],
  properties: {
    schema_version: { const: 1, default: 1, type: "integer" },
    name: { type: "string", description: "What people call the run." },
    data: { $ref: "#/$defs/Data", description: "Which data." },
    model: { $ref: "#/$defs/Model", default: { layers: 8 } },
  },
  $defs: {
    Data: {
      required: ["dataset"],
      properties: {
        dataset: { type: "string" },
        version: { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
        tokenizer: { $ref: "#/$defs/Tokenizer", default: { kind: "bytes", vocabulary: null } },
      },
    },
    Tokenizer: {
      properties: {
        kind: { $ref: "#/$defs/Kind", default: "bpe", description: "How." },
        vocabulary: { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
      },
    },
    Kind: { enum: ["bpe", "bytes"], type: "string", description: "" },
    Model: {
      description: "Shape of the network.",
      properties: {
        layers: { type: "integer", default: 6 },
        tied_embeddings: { type: "boolean", default: true },
        norm_epsilon: { type: "number", default: 0.00001 },
      },
    },
  },
};

const sections = sectionsOf(SCHEMA);
const fields = sections.flatMap((section) => section.fields);

describe("sectionsOf", () => {
  it("puts the fields at the top first and leaves out what has one value only", () => {
    expect(sections.map(({ key }) => key)).toEqual(["", "data", "model"]);
    expect(sections[0]?.fields.map(({ path }) => path)).toEqual(["name"]);
  });

  it("follows references, flattens what is nested, and knows kinds", () => {
    const kinds = Object.fromEntries(fields.map(({ path, kind }) => [path, kind]));
    expect(kinds).toEqual({
      name: "text",
      "data.dataset": "text",
      "data.version": "integer",
      "data.tokenizer.kind": "choice",
      "data.tokenizer.vocabulary": "integer",
      "model.layers": "integer",
      "model.tied_embeddings": "switch",
      "model.norm_epsilon": "number",
    });
  });

  it("takes the sentence beside a reference before the one behind it", () => {
    expect(sections[1]?.help).toBe("Which data.");
    expect(sections[2]?.help).toBe("Shape of the network.");
    expect(fields.find(({ path }) => path === "data.tokenizer.kind")?.help).toBe("How.");
  });

  it("takes a nested section's own default before its fields' defaults", () => {
    expect(fields.find(({ path }) => path === "data.tokenizer.kind")?.standard).toBe("bytes");
  });

  it("knows what is required", () => {
    expect(fields.filter(({ required }) => required).map(({ path }) => path)).toEqual(["name", "data.dataset"]);
  });
});

describe("specOf and valuesOf", () => {
  it("say only what was filled in, with the right types", () => {
    const values = { name: "a", "data.tokenizer.kind": "bpe", "model.layers": "1,024", "model.tied_embeddings": "false" };
    expect(specOf({ ...values, "model.norm_epsilon": "  " }, fields)).toEqual({
      name: "a",
      data: { tokenizer: { kind: "bpe" } },
      model: { layers: 1_024, tied_embeddings: false },
    });
  });

  it("leave text that is no number for the API to refuse", () => {
    expect(specOf({ "model.layers": "six" }, fields)).toEqual({ model: { layers: "six" } });
  });

  it("are each other's inverse", () => {
    const spec = { name: "a", data: { dataset: "ds_1", tokenizer: { vocabulary: 300 } }, model: { norm_epsilon: 1e-8 } };
    const { values, strangers } = valuesOf(spec, fields);
    expect(strangers).toEqual([]);
    expect(specOf(values, fields)).toEqual(spec);
  });

  it("name what the form has no field for", () => {
    expect(valuesOf({ schema_version: 1, model: { layer: 3 } }, fields).strangers).toEqual(["model.layer"]);
  });
});

it("labels read as words", () => {
  expect([label("learning_rate"), label("kv_heads"), label("rope_theta")]).toEqual([
    "Learning rate",
    "KV heads",
    "RoPE theta",
  ]);
});
