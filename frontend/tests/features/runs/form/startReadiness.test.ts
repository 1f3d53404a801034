import { expect, it } from "vitest";
import type { RunPlan, SpecCheck } from "@/api/types";
import { slotText, startReadiness } from "@/features/runs/form/startReadiness";

const GIB = 2 ** 30;

it("says that a CPU slot has a share of its node's memory, which is less than the node has", () => {
  const plan = { slot_device: "cpu", slot_node: "local" } as RunPlan;
  expect(slotText(plan, 12 * GIB)).toBe("12 GiB, a slot's share of the memory on local");
  const alone = "12 GiB, a slot's share of the memory on local (up to 24 GiB when no other run is on the node)";
  expect(slotText({ ...plan, largest_bytes: 24 * GIB }, 12 * GIB)).toBe(alone);
  expect(slotText({ ...plan, largest_bytes: 12 * GIB }, 12 * GIB)).toBe("12 GiB, a slot's share of the memory on local");
  expect(slotText({ ...plan, slot_device: "cuda" }, 80 * GIB)).toBe("80 GiB on local");
  expect(slotText({ ...plan, slot_device: null, slot_node: null }, 80 * GIB)).toBe("80 GiB");
});

it("counts what a CPU rank offloads, which takes the same memory, as the refusal does", () => {
  const memory = [{ total: 4 * GIB, host: 3 * GIB }, { total: 5 * GIB, host: 0 }];
  const plan = { slot_device: "cpu", slot_node: "local", slot_bytes: 12 * GIB, memory, warnings: [] } as unknown as RunPlan;
  const check = { valid: true, warnings: [] } as unknown as SpecCheck;
  const detail = (plan: RunPlan) => startReadiness({ problemCount: 0, check, plan, labels: new Map() }).detail;
  expect(detail(plan)).toBe("The rank that needs the most memory takes 7 GiB of 12 GiB.");
  expect(detail({ ...plan, slot_device: "cuda" })).toContain("takes 5 GiB of 12 GiB");
});

it("names the fields of a warning as the form does", () => {
  const check = { valid: true, warnings: ["Few documents. Raise data.validation_fraction."] } as unknown as SpecCheck;
  const labels = new Map([["parallelism.zero_stage", "ZeRO stage"], ["data.validation_fraction", "Validation fraction"]]);
  const verdict = startReadiness({ problemCount: 0, check, plan: undefined, labels });
  expect(verdict).toMatchObject({ title: "Can start with a warning", detail: "Few documents. Raise “Validation fraction”." });
  const tight = { memory: [], warnings: ["It may not fit. Raise zero_stage on data.example.org."] } as unknown as RunPlan;
  expect(startReadiness({ problemCount: 0, check: { ...check, warnings: [] }, plan: tight, labels })).toMatchObject({ title: "May not fit", detail: "It may not fit. Raise “ZeRO stage” on data.example.org." });
});

it.each([
  [1, "“Slots per node”", "Fix “Slots per node”."],
  [3, "line 4", "Fix line 4 and 2 other problems."],
  [2, undefined, "2 problems to solve first."],
])("says where the first problem is (%#)", (problemCount, firstProblem, detail) => {
  expect(startReadiness({ problemCount, firstProblem, check: undefined, plan: undefined, labels: new Map() })).toMatchObject({ tone: "bad", detail });
});
