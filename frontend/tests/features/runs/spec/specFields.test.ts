import { describe, expect, it } from "vitest";
import { isActive, NONE, sectionsOf, specOf, valuesOf, type JsonSchema } from "@/features/runs/spec/specFields";
import { fieldLabel, inSentence } from "@/lib/fieldLabel";

const SCHEMA: JsonSchema = {
  required: ["name", "data"],
  properties: {
    schema_version: { const: 1, default: 1, type: "integer" },
    name: { type: "string", description: "The name of the run." },
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
  it("puts top-level fields first and omits fields with a single value", () => {
    expect(sections.map(({ key }) => key)).toEqual(["", "data", "model"]);
    expect(sections[0]?.fields.map(({ path }) => path)).toEqual(["name"]);
  });

  it("follows references, flattens nested sections, and detects kinds", () => {
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

  it("prefers the description next to a reference over the referenced one", () => {
    expect(sections[1]?.help).toBe("Which data.");
    expect(sections[2]?.help).toBe("Shape of the network.");
    expect(fields.find(({ path }) => path === "data.tokenizer.kind")?.help).toBe("How.");
  });

  it("prefers a nested section's default over its fields' defaults", () => {
    expect(fields.find(({ path }) => path === "data.tokenizer.kind")?.defaultText).toBe("bytes");
  });

  it("knows what is required", () => {
    expect(fields.filter(({ required }) => required).map(({ path }) => path)).toEqual(["name", "data.dataset"]);
  });
});

describe("specOf and valuesOf", () => {
  it("contain only filled fields, with the right types", () => {
    const values = { name: "a", "data.tokenizer.kind": "bpe", "model.layers": "1,024", "model.tied_embeddings": "false" };
    expect(specOf({ ...values, "model.norm_epsilon": "  " }, fields)).toEqual({
      name: "a",
      data: { tokenizer: { kind: "bpe" } },
      model: { layers: 1_024, tied_embeddings: false },
    });
  });

  it("keep text that is not a number for the API to refuse", () => {
    expect(specOf({ "model.layers": "six" }, fields)).toEqual({ model: { layers: "six" } });
  });

  it("are each other's inverse", () => {
    const spec = { name: "a", data: { dataset: "ds_1", tokenizer: { vocabulary: 300 } }, model: { norm_epsilon: 1e-8 } };
    const { values, unknownPaths } = valuesOf(spec, fields);
    expect(unknownPaths).toEqual([]);
    expect(specOf(values, fields)).toEqual(spec);
  });

  it("name what the form has no field for", () => {
    expect(valuesOf({ schema_version: 1, model: { layer: 3 } }, fields).unknownPaths).toEqual(["model.layer"]);
  });
});

describe("a section that only one kind has", () => {
  const [, section] = sectionsOf({
    properties: { precision: { $ref: "#/$defs/Precision" } },
    $defs: {
      Precision: {
        properties: {
          kind: { enum: ["bf16", "fp8"], type: "string", default: "bf16" },
          fp8: { anyOf: [{ $ref: "#/$defs/FP8" }, { type: "null" }], default: null, description: "The recipe." },
          compile: { enum: ["auto", "off"], type: "string", default: "auto" },
        },
      },
      FP8: {
        description: "The FP8-LM recipe.",
        properties: {
          level: { enum: ["O1", "O2"], type: "string", default: "O2", description: "How far." },
          skip_limit: { type: "integer", default: 3 },
          optimizer_in_backward: { type: "boolean", default: false },
        },
      },
    },
  });
  const precision = section?.fields ?? [];
  const level = precision.find(({ path }) => path === "precision.fp8.level");
  const filled = { "precision.fp8.level": "O1", "precision.fp8.skip_limit": "0" };

  it("is a group of fields after the others, with the defaults and help of its schema", () => {
    expect(precision.map(({ path, label: word, defaultText }) => [path, word, defaultText])).toEqual([
      ["precision.kind", "Kind", "bf16"],
      ["precision.compile", "Compile", "auto"],
      ["precision.fp8.level", "Level", "O2"],
      ["precision.fp8.skip_limit", "Skip limit", "3"],
      ["precision.fp8.optimizer_in_backward", "Optimizer in backward", "false"],
    ]);
    expect(level).toMatchObject({ help: "How far.", group: { key: "fp8", label: "FP8", help: "The FP8-LM recipe." } });
  });

  it("is active for its kind only, whether chosen or the default", () => {
    if (!level?.group?.kind) throw new Error("no group");
    expect(isActive(level, {})).toBe(false);
    expect(isActive(level, { "precision.kind": "fp8" })).toBe(true);
    const byDefault = { ...level, group: { ...level.group, kind: { ...level.group.kind, defaultText: "fp8" } } };
    expect(isActive(byDefault, {})).toBe(true);
    expect(isActive(byDefault, { "precision.kind": "bf16" })).toBe(false);
  });

  it("is sent for its kind only, even if its fields are filled", () => {
    expect(specOf({ ...filled, "precision.kind": "fp8" }, precision)).toEqual({
      precision: { kind: "fp8", fp8: { level: "O1", skip_limit: 0 } },
    });
    expect(specOf({ "precision.kind": "fp8" }, precision)).toEqual({ precision: { kind: "fp8" } });
    expect(specOf({ ...filled, "precision.kind": "bf16" }, precision)).toEqual({ precision: { kind: "bf16" } });
    expect(specOf(filled, precision)).toEqual({});
  });

  it("may be null or filled in a stored spec", () => {
    expect(valuesOf({ precision: { kind: "bf16", fp8: null } }, precision)).toEqual({
      values: { "precision.kind": "bf16" },
      unknownPaths: [],
    });
    const stored = { precision: { kind: "fp8", fp8: { level: "O1", skip_limit: 0, optimizer_in_backward: true }, compile: "off" } };
    const { values, unknownPaths } = valuesOf(stored, precision);
    expect(unknownPaths).toEqual([]);
    expect(specOf(values, precision)).toEqual(stored);
    expect(valuesOf({ precision: { fp8: { levle: "O1" } } }, precision).unknownPaths).toEqual(["precision.fp8.levle"]);
  });
});

describe("null where it is not the default", () => {
  const optimizer = {
    properties: {
      clip_norm: { anyOf: [{ type: "number" }, { type: "null" }], default: 1 },
      warmup: { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
      fused: { type: "boolean", default: true },
    },
  };
  const own = sectionsOf({ properties: { optimizer } }).flatMap((section) => section.fields);

  it("is offered only for nullable fields", () => {
    expect(own.filter(({ isNullable }) => isNullable).map(({ path }) => path)).toEqual(["optimizer.clip_norm"]);
  });

  it("survives a round trip through the form, distinct from an empty field", () => {
    const stored = { optimizer: { clip_norm: null, warmup: null, fused: false } };
    const { values, unknownPaths } = valuesOf(stored, own);
    expect(values).toEqual({ "optimizer.clip_norm": NONE, "optimizer.warmup": "", "optimizer.fused": "false" });
    expect(unknownPaths).toEqual([]);
    expect(specOf(values, own)).toEqual({ optimizer: { clip_norm: null, fused: false } });
    expect(specOf({ ...values, "optimizer.clip_norm": "" }, own)).toEqual({ optimizer: { fused: false } });
  });

  it("is passed to the API if the field is not nullable", () => {
    const wrong = { optimizer: { fused: null } };
    expect(specOf(valuesOf(wrong, own).values, own)).toEqual(wrong);
  });
});

describe("choices and lists of numbers", () => {
  const parallelism = {
    properties: {
      zero_stage: { enum: [0, 1, 2, 3], type: "integer", default: 0 },
      stages: { anyOf: [{ $ref: "#/$defs/Stages" }, { type: "array", items: { type: "integer" } }], default: "even" },
    },
  };
  const own = sectionsOf({
    properties: { parallelism },
    $defs: { Stages: { enum: ["even", "auto"], type: "string" } },
  }).flatMap((section) => section.fields);

  it("are sent with the schema's types, whether chosen or copied from a spec", () => {
    const stored = { parallelism: { zero_stage: 2, stages: [2, 3, 3, 2] } };
    const { values } = valuesOf(stored, own);
    expect(values).toEqual({ "parallelism.zero_stage": "2", "parallelism.stages": "2,3,3,2" });
    expect(specOf(values, own)).toEqual(stored);
    expect(specOf({ "parallelism.zero_stage": "0", "parallelism.stages": "auto" }, own)).toEqual({
      parallelism: { zero_stage: 0, stages: "auto" },
    });
  });

  it("are passed to the API as written if they are neither", () => {
    const wrong = { "parallelism.zero_stage": "7", "parallelism.stages": "2,,3" };
    expect(specOf(wrong, own)).toEqual({ parallelism: { zero_stage: "7", stages: "2,,3" } });
  });
});

it("turns keys into readable labels", () => {
  expect([fieldLabel("learning_rate"), fieldLabel("kv_heads"), fieldLabel("rope_theta")]).toEqual([
    "Learning rate",
    "KV heads",
    "RoPE theta",
  ]);
  expect([fieldLabel("zero_stage"), fieldLabel("gpu_memory_gib"), fieldLabel("qk_norm")]).toEqual(["ZeRO stage", "GPU memory GiB", "QK norm"]);
});

it("has labels for keys that are none, also by section", () => {
  expect(fieldLabel("micro_sequences")).toBe("Micro batch (sequences)");
  expect(fieldLabel("every_steps", "validation.every_steps")).toBe("Validate every (steps)");
  expect(fieldLabel("every_steps", "checkpoint.every_steps")).toBe("Save every (steps)");
  const steps = { properties: { every_steps: { type: "integer", default: 100 } } };
  const sections = sectionsOf({ properties: { validation: steps, checkpoint: steps } });
  expect(sections.flatMap(({ fields }) => fields).map(({ label }) => label)).toEqual(["Validate every (steps)", "Save every (steps)"]);
});

it("keeps abbreviations of labels within sentences", () => {
  expect(["Learning rate", "KV heads", "RoPE theta", "ZeRO stage"].map(inSentence)).toEqual(["learning rate", "KV heads", "RoPE theta", "ZeRO stage"]);
});

it("heads the fields of an optional section that no kind selects, and sends them once one is set", () => {
  const [, model] = sectionsOf({
    properties: {
      model: {
        properties: {
          width: { type: "integer", default: 64 },
          rope_scaling: { anyOf: [{ description: "Longer sequences.", properties: { factor: { type: "number", default: 8 } } }, { type: "null" }], default: null },
        },
      },
    },
  });
  const fields = model?.fields ?? [];
  expect(fields[1]).toMatchObject({
    path: "model.rope_scaling.factor",
    label: "Factor",
    group: { label: "RoPE scaling", help: "Longer sequences. Off unless you set one of these.", kind: null },
  });
  expect(specOf({}, fields)).toEqual({});
  expect(specOf({ "model.rope_scaling.factor": "4" }, fields)).toEqual({ model: { rope_scaling: { factor: 4 } } });
});
