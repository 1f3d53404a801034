import { render, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Run } from "@/api/types";
import { SpecDifferences } from "@/features/runs/compare/SpecDifferences";
import { aRun } from "@tests/support/runs";

function values(field: string): (string | null)[] {
  const row = screen.getByRole("rowheader", { name: field }).closest("tr");
  return within(row as HTMLElement).getAllByRole("cell").map(({ textContent }) => textContent);
}

it("names datasets, lists texts, and says what an empty field means", () => {
  const { spec } = aRun();
  const other = {
    ...spec,
    data: { ...spec.data, dataset: "ds_2" },
    model: { ...spec.model, sliding_window: 64 },
    validation: { ...spec.validation, prompts: ["def ", "import "] },
  };
  const runs = [aRun({ name: "one", spec: { ...spec, model: { ...spec.model, sliding_window: null } } }), aRun({ id: "run_2", name: "two", spec: other })];
  render(<SpecDifferences runs={runs} datasets={new Map([["ds_1", "letters"]])} />);
  expect(values("data · dataset"), "the id where the name is not known").toEqual(["letters", "ds_2"]);
  expect(values("model · sliding window")).toEqual(["none", "64"]);
  expect(values("validation · prompts")).toEqual(["none", "def · import "]);
});

it("tells datasets with the same name apart", () => {
  const { spec } = aRun();
  const ids = ["ds_aaaaaa", "ds_bbbbbb"];
  const runs = ids.map((dataset) => aRun({ id: `run of ${dataset}`, spec: { ...spec, data: { ...spec.data, dataset } } }));
  render(<SpecDifferences runs={runs} datasets={new Map([...ids, "ds_other"].map((id) => [id, "letters"]))} />);
  expect(values("data · dataset")).toEqual(["letters (aaaaa)", "letters (bbbbb)"]);
});

it("says what it means that a run does not set an optional group", () => {
  const { spec } = aRun();
  const withFactors = (learning_rate_factors: Run["spec"]["optimizer"]["learning_rate_factors"]) => ({ ...spec, optimizer: { ...spec.optimizer, learning_rate_factors } });
  const factors = { embedding: 0.5, head: 2, block_matrices: 1.5, vectors: 0.1 };
  render(<SpecDifferences runs={[aRun({ spec: withFactors(null) }), aRun({ id: "run_2", spec: withFactors(factors) })]} datasets={new Map()} />);
  expect(values("optimizer · learning rate factors · head")).toEqual(["one rate for all weights", "2"]);
});

it("wraps on phones, where its columns are side by side only if they are narrow", () => {
  const { spec } = aRun();
  render(<SpecDifferences runs={[aRun(), aRun({ id: "run_2", spec: { ...spec, seed: 1 } })]} datasets={new Map()} />);
  const [label, value] = [screen.getByRole("rowheader", { name: "seed" }), screen.getAllByRole("cell")[0]];
  expect(label.className).not.toMatch(/(^| )whitespace-nowrap/);
  expect(value?.className).not.toMatch(/(^| )truncate/);
});
