import { render, screen } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { useState } from "react";
import { expect, it } from "vitest";
import type { SpecInfo } from "@/api/types";
import { PresetCards } from "@/features/runs/form/PresetCards";
import type { SpecValues } from "@/features/runs/spec/specFields";

const INFO = {
  presets: { nano: { layers: 2 }, micro: { layers: 6 }, "llama-8b": { layers: 32 } },
  preset_families: { nano: "Small models", micro: "Small models", "llama-8b": "Llama" },
  preset_parameters: {},
} as unknown as SpecInfo;

function Form({ initial }: { initial: SpecValues }) {
  const [values, setValues] = useState(initial);
  return (
    <>
      <PresetCards info={INFO} fields={[]} values={values} onChange={setValues} />
      <output>{values["model.layers"]} layers</output>
      <button
        type="button"
        onClick={() => {
          setValues({ "model.layers": "6" });
        }}
      >
        Load a recipe
      </button>
    </>
  );
}

const cards = () => screen.getByRole("radiogroup", { name: "Preset" }).textContent;

it("shows one family at a time, first that of the current preset", async () => {
  render(<Form initial={{ "model.layers": "2" }} />);
  expect(cards()).toContain("micro");
  expect(cards()).not.toContain("llama-8b");
  const family = screen.getByRole<HTMLSelectElement>("combobox", { name: "Family" });
  expect([...family.options].map(({ text }) => text)).toEqual(["Small models (2)", "Llama (1)"]);
  await userEvent.selectOptions(family, "Llama");
  expect(cards()).not.toContain("micro");
  expect(screen.getByText("2 layers"), "looking at a family changes nothing").toBeDefined();
  await userEvent.click(screen.getByRole("radio", { name: /^llama-8b/ }));
  expect(screen.getByText("32 layers")).toBeDefined();
  await userEvent.selectOptions(family, "Small models");
  await userEvent.selectOptions(family, "Llama");
  await userEvent.click(screen.getByRole("button", { name: "Load a recipe" }));
  expect(screen.getByRole<HTMLInputElement>("radio", { name: /^micro/ }).checked, "the family of a preset chosen elsewhere is shown").toBe(true);
});

it("shows the first family and says Custom for a model that is no preset", () => {
  render(<Form initial={{ "model.layers": "7" }} />);
  expect(cards()).toContain("nano");
  expect(cards()).toContain("Custom");
});
