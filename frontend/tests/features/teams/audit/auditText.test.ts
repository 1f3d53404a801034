import { expect, it } from "vitest";
import { actionLabel, givenName, objectsOf } from "@/features/teams/audit/auditText";

it("names an action plainly", () => {
  expect(["cancel_run", "decide_device_login", "retain_checkpoints"].map(actionLabel)).toEqual(["cancel run", "answer a program that asks for a key", "clean up checkpoints"]);
});

it.each([
  ['{"name": "pilot-8", "seed": 1}', "pilot-8"],
  ['{"email": "bob@example.org", "role": "editor"}', "bob@example.org"],
  ['{"schema_version": 2, "name": "pilot-8", "data": {"dataset": "ds_…', "pilot-8"],
  ['{"runs": ["run_a"], "changes": {"name": "inner"}, "more": "…', undefined],
  ['{"name": null}', undefined],
  ['["name"]', undefined],
  ["", undefined],
])("finds the name that a request gave (%#)", (details, name) => {
  expect(givenName(details)).toBe(name);
});

it.each([
  ["/api/v1/teams/my_team/runs", []],
  ["/api/v1/teams/lab/runs/run_a/checkpoints/ckpt_b", [{ kind: "run", id: "run_a" }, { kind: "checkpoint", id: "ckpt_b" }]],
  ["/api/v1/teams/lab/datasets/ds_b/versions/2", [{ kind: "dataset", id: "ds_b" }, { kind: "version", id: "2" }]],
  ["/api/v1/teams/lab/service-accounts/user_c/keys", [{ kind: "service account", id: "user_c" }]],
  ["/api/v1/nodes/node_d", [{ kind: "node", id: "node_d" }]],
])("finds the objects in a path (%#)", (path, objects) => {
  expect(objectsOf(path)).toEqual(objects);
});
