import { screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { useState } from "react";
import { expect, it } from "vitest";
import { SamplesTab } from "@/features/runs/samples/SamplesTab";
import type { SampleSearch } from "@/features/runs/samples/sampleSteps";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const LOSSES = { steps: [10, 20, 30], values: [5, 4, 3] };

const at = (step: number) => ({
  step,
  attempt: 1,
  time: "2026-01-01T00:00:00Z",
  samples: [
    { prompt: "the dog", text: ` ran ${String(step)} times` },
    { prompt: "a cat", text: "" },
  ],
});

function Shown({ live = false }: { live?: boolean }) {
  const [view, setView] = useState<SampleSearch>({});
  return (
    <SamplesTab
      team="lab"
      run={aRun()}
      live={live}
      losses={LOSSES}
      view={view}
      onView={(next) => {
        setView((old) => ({ ...old, ...next }));
      }}
    />
  );
}

function serve(items: unknown[]) {
  server.use(http.get("*/runs/*/samples", () => HttpResponse.json({ items, next_cursor: null })));
}

it("steps from the newest validation to earlier ones and back", async () => {
  serve([at(30), at(20), at(10)]);
  renderRoute(<Shown />);
  expect(await screen.findByText("ran 30 times")).toBeTruthy();
  expect(within(screen.getByLabelText("Samples after")).getByRole("option", { name: "step 10, loss 5.000" })).toBeTruthy();
  expect(screen.getByText("The model ended the text immediately.")).toBeTruthy();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Later validation" }).disabled).toBe(true);
  await userEvent.click(screen.getByRole("button", { name: "Earlier validation" }));
  expect(screen.getByText("ran 20 times")).toBeTruthy();
  await userEvent.click(screen.getByRole("button", { name: "Earlier validation" }));
  expect(screen.getByText("ran 10 times")).toBeTruthy();
  expect(screen.getByRole<HTMLButtonElement>("button", { name: "Earlier validation" }).disabled).toBe(true);
  await userEvent.click(screen.getByRole("button", { name: "Later validation" }));
  expect(screen.getByText("ran 20 times")).toBeTruthy();
});

it("compares two validations prompt by prompt, with their losses", async () => {
  serve([at(30), at(20), at(10)]);
  renderRoute(<Shown />);
  await userEvent.selectOptions(await screen.findByLabelText("Compare with"), "10");
  const [first] = screen.getAllByRole("listitem");
  const texts = within(first as HTMLElement).getAllByText(/ran|validation loss/).map(({ textContent }) => textContent);
  expect(texts).toEqual(["step 30, validation loss 3.000", "the dog ran 30 times", "step 10, validation loss 5.000", "the dog ran 10 times"]);
});

it.each([
  [true, /continues its prompts after each validation/],
  [false, /ended before its first validation/],
])("shows why there are none yet, live: %s", async (live, words) => {
  serve([]);
  renderRoute(<Shown live={live} />);
  expect(await screen.findByText(words)).toBeTruthy();
});
