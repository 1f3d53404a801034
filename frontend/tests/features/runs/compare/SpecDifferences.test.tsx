import { render, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { SpecDifferences } from "@/features/runs/compare/SpecDifferences";
import { aRun } from "@tests/support/runs";

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
  const values = (field: string) => {
    const row = screen.getByRole("rowheader", { name: field }).closest("tr");
    return within(row as HTMLElement).getAllByRole("cell").map(({ textContent }) => textContent);
  };
  expect(values("data · dataset"), "the id where the name is not known").toEqual(["letters", "ds_2"]);
  expect(values("model · sliding window")).toEqual(["none", "64"]);
  expect(values("validation · prompts")).toEqual(["none", "def · import "]);
});
