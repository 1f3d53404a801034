import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Run } from "@/api/types";
import { ConfigurationTab } from "@/features/runs/ConfigurationTab";
import { renderRoute } from "../renderRoute";
import { aRun } from "../runs";

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

it("says of a live run what it runs as now, and what its next attempt will be", async () => {
  const { value, note } = await shown({ state: "running", attempt_layout: NOW });
  expect(note).toBe("Its layout was changed. Attempt 3 goes on as it began; the next one has the new layout.");
  expect(value("tensor")).toBe("runs now 2, next attempt 1");
  expect(value("pipeline")).toBe("runs now 1, next attempt 2");
  expect(value("micro sequences")).toBe("runs now 4, next attempt 2");
  expect(value("data")).toBe("2 (automatic)");
  expect(value("global sequences")).toBe("8");
});

it("says of a run that waits how its last attempt was, and how the next will be", async () => {
  const { value, note } = await shown({ state: "paused", attempt_layout: NOW });
  expect(note).toContain("The next attempt, 4, has the new layout.");
  expect(value("tensor")).toBe("last attempt ran 2, next attempt 1");
});

it("does not say of a run that has ended that it ran as it never did", async () => {
  const { value, note } = await shown({ state: "succeeded", ended: "2026-11-21T14:00:00Z", attempt_layout: NOW });
  expect(note).toContain("no further attempt began in the new one");
  expect(value("tensor")).toBe("ran 2; 1 was for a next attempt");
});

it.each([["before the first attempt", null], ["once the attempt has the layout", SAME]])("says one thing %s", async (_, attempt_layout) => {
  const { value, note } = await shown({ attempt_layout });
  expect(note).toBeUndefined();
  expect(value("pipeline")).toBe("2");
});
