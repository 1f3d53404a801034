import { cleanup, screen, within } from "@testing-library/react";
import { userEvent } from "@testing-library/user-event";
import { http, HttpResponse } from "msw";
import { expect, it } from "vitest";
import type { Run } from "@/api/types";
import { ConfigurationTab } from "@/features/runs/detail/ConfigurationTab";
import { renderRoute } from "@tests/support/renderRoute";
import { aRun } from "@tests/support/runs";
import { server } from "@tests/support/server";

const SPEC = { ...aRun().spec, resources: { ...aRun().spec.resources, slots_per_node: 4 } };
const NEXT = { ...SPEC, parallelism: { ...SPEC.parallelism, pipeline: 2 }, batch: { ...SPEC.batch, micro_sequences: 2 } };
const NOW: Run["attempt_layout"] = { parallelism: { ...SPEC.parallelism, tensor: 2 }, micro_sequences: 4 };
const SAME: Run["attempt_layout"] = { parallelism: NEXT.parallelism, micro_sequences: 2 };

async function shown(change: Partial<Run>) {
  renderRoute(<ConfigurationTab team="lab" run={aRun({ attempt: 3, spec: NEXT, ...change })} dataset="letters" />);
  await screen.findByText("letters");
  const value = (name: string) => screen.getByText(name, { selector: "dt" }).nextSibling?.textContent;
  return { value, note: screen.queryByRole("note")?.textContent };
}

it("shows a live run's current layout and that of its next attempt", async () => {
  const { value, note } = await shown({ state: "running", attempt_layout: NOW });
  expect(note).toBe("The layout was changed. Attempt 3 keeps the old one; the next attempt uses the new one.");
  expect(value("tensor")).toBe("now 2, next attempt 1");
  expect(value("pipeline")).toBe("now 1, next attempt 2");
  expect(value("micro batch (sequences)")).toBe("now 4, next attempt 2");
  expect(value("data")).toBe("2 (automatic)");
  expect(value("global batch (sequences)")).toBe("8");
});

it("shows a waiting run's last layout and that of its next attempt", async () => {
  const { value, note } = await shown({ state: "paused", attempt_layout: NOW });
  expect(note).toContain("The next attempt, 4, uses the new one.");
  expect(value("tensor")).toBe("last attempt 2, next attempt 1");
});

it("shows the layout that an ended run really had", async () => {
  const { value, note } = await shown({ state: "succeeded", ended: "2026-11-21T14:00:00Z", attempt_layout: NOW });
  expect(note).toContain("no later attempt started with it");
  expect(value("tensor")).toBe("2; 1 was set for the next attempt");
});

it.each([["before the first attempt", null], ["once the attempt has the layout", SAME]])("shows one value %s", async (_, attempt_layout) => {
  const { value, note } = await shown({ attempt_layout });
  expect(note).toBeUndefined();
  expect(value("pipeline")).toBe("2");
});

it("puts texts in quotation marks if their spaces would not be seen", async () => {
  const prompts = (...texts: string[]) => ({ spec: { ...SPEC, validation: { ...SPEC.validation, prompts: texts } } });
  const first = await shown(prompts("def ", "class A"));
  expect(first.value("prompts")).toBe('"def "\n"class A"');
  cleanup();
  const { value } = await shown(prompts("the dog", "a cat"));
  expect(value("prompts")).toBe("the dog\na cat");
});

it("shows no values before it knows which are defaults", async () => {
  let answer = () => {};
  const described = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const runSpec = { properties: { seed: { type: "integer", default: 0 } } };
  server.use(
    http.get("*/api/v1/spec", async () => {
      await described;
      return HttpResponse.json({ run_spec: runSpec, presets: {}, preset_families: {}, gpus: [] });
    }),
  );
  renderRoute(<ConfigurationTab team="lab" run={aRun()} dataset="letters" />);
  await screen.findByRole("status", { name: "Loading" });
  expect(screen.queryByRole("heading", { level: 2 })).toBeNull();
  answer();
  await screen.findByText("letters");
  expect(screen.getAllByRole("heading", { level: 2 }).map(({ textContent }) => textContent)).toEqual([
    "Chosen by you, or for you when the run was submitted",
    "Defaults not changed",
  ]);
});

it("shows the configuration as YAML", async () => {
  await shown({});
  await userEvent.click(screen.getByRole("button", { name: "View as YAML" }));
  const dialog = within(await screen.findByRole("dialog", { name: "Configuration as YAML" }));
  expect(dialog.getByRole("region", { name: "YAML" }).textContent).toContain("name: pilot-7\nseed: 0\n");
  expect(dialog.getByRole("button", { name: "Copy as YAML" })).toBeDefined();
});
