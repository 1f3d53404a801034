import { expect, it } from "vitest";
import { groupsOf, splitByDefault } from "@/features/runs/detail/configurationGroups";
import { sectionsOf, type JsonSchema } from "@/features/runs/spec/specFields";

const SCHEMA: JsonSchema = {
  properties: {
    schema_version: { const: 2 },
    name: { type: "string" },
    seed: { type: "integer", default: 0 },
    optimizer: {
      properties: {
        learning_rate: { type: "number", default: 0.001 },
        clip_norm: { anyOf: [{ type: "number" }, { type: "null" }], default: 1 },
      },
    },
    validation: { properties: { prompts: { type: "array", items: { type: "string" }, default: [] } } },
  },
};
const FIELDS = sectionsOf(SCHEMA).flatMap(({ fields }) => fields);
const paths = (groups: ReturnType<typeof groupsOf>) => groups.flatMap(({ entries }) => entries.map(({ path }) => path));

it("separates chosen values from defaults", () => {
  const spec = { schema_version: 2, name: "pilot", seed: 0, optimizer: { learning_rate: 0.003, clip_norm: 1 }, validation: { prompts: [] } };
  const [chosen, defaults] = splitByDefault(groupsOf(spec), FIELDS);
  expect(paths(chosen)).toEqual(["name", "optimizer.learning_rate"]);
  expect(paths(defaults)).toEqual(["schema_version", "seed", "optimizer.clip_norm", "validation.prompts"]);
});

it("counts an explicit null and a list with texts as chosen", () => {
  const spec = { name: "pilot", optimizer: { learning_rate: 0.001, clip_norm: null }, validation: { prompts: ["a"] } };
  const [chosen] = splitByDefault(groupsOf(spec), FIELDS);
  expect(paths(chosen)).toEqual(["name", "optimizer.clip_norm", "validation.prompts"]);
});

it("shows all values in one list until the defaults are known", () => {
  const groups = groupsOf({ name: "pilot", optimizer: { learning_rate: 0.001 } });
  expect(splitByDefault(groups, null)).toEqual([groups, []]);
});
