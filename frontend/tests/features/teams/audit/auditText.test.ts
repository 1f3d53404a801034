import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { actionLabel, givenName, namesOf, objectsOf, sentenceOf } from "@/features/teams/audit/auditText";

const TEAM = "/api/v1/teams/lab";

it.each([
  ["delete_run", `${TEAM}/runs/run_aavm77m`, "", "Deleted run vm77m"],
  ["delete_run", `${TEAM}/runs/run_aavm77m`, '?dry_run=false {"name": "pilot"}', "Deleted run pilot"],
  ["delete_service_key", `${TEAM}/service-accounts/user_ccccc/keys/key_ddddd`, '{"name": "ci"}', "Revoked key ci of service account ccccc"],
  ["remove_member", `${TEAM}/members/user_ccccc`, '?runs=cancel {"name": "Bob"}', "Removed member Bob"],
  ["delete_run", `${TEAM}/runs/run_aavm77m`, "?dry_run=true", "Previewed deletion of run vm77m"],
  ["retain_checkpoints", `${TEAM}/checkpoints/retention`, '{"keep_last": 1}', "Previewed clean-up of checkpoints"],
  ["retain_checkpoints", `${TEAM}/checkpoints/retention`, '{"keep_last": 1, "dry_run": false}', "Cleaned up checkpoints"],
  ["submit_run", `${TEAM}/runs`, '{"name": "pilot"}', "Submitted run pilot"],
  ["submit_run", `${TEAM}/runs`, '?priority=high {"name": "pilot"}', "Submitted run pilot"],
  ["submit_run", `${TEAM}/runs`, '{"created": "run_aavm77m", "schema_version": 1, "name": "pilot", "data": {"dat…', "Submitted run pilot"],
  ["create_webhook", `${TEAM}/webhooks`, '{"created": "hook_aavm77m", "url": "https://example.org/..."}', "Created webhook https://example.org/..."],
  ["create_webhook", `${TEAM}/webhooks`, '{"url": "https://example.org/..."}', "Created webhook https://example.org/..."],
  ["clone_run", `${TEAM}/runs/run_aavm77m/clone`, '{"created": "run_b", "name": "pilot-2"}', "Cloned run vm77m as pilot-2"],
  ["edit_run", `${TEAM}/runs/run_aavm77m`, '{"name": "pilot"}', "Edited run pilot"],
  ["edit_run", `${TEAM}/runs/run_aavm77m`, '{"name": null, "notes": "x"}', "Edited run vm77m"],
  ["clone_run", `${TEAM}/runs/run_aavm77m/clone`, '{"name": "pilot-2"}', "Cloned run vm77m as pilot-2"],
  ["delete_checkpoint", `${TEAM}/runs/run_aavm77m/checkpoints/ckpt_bb4kq2p`, "", "Deleted checkpoint 4kq2p of run vm77m"],
  ["edit_checkpoint", `${TEAM}/runs/run_aavm77m/checkpoints/ckpt_bb4kq2p`, '{"pinned": false}', "Unpinned checkpoint 4kq2p of run vm77m"],
  ["act_on_runs", `${TEAM}/runs/bulk`, '{"action": "tag", "runs": ["run_a", "run_b"], "tags": ["x"]}', "Asked to tag 2 runs"],
  ["act_on_runs", `${TEAM}/runs/bulk`, '{"action": "delete", "runs": ["run_aavm77m"]}', "Asked to delete run vm77m"],
  ["act_on_runs", `${TEAM}/runs/bulk`, '{"action": "cancel", "runs": ["run_a", "run_…', "Asked to cancel several runs"],
  ["delete_dataset_version", `${TEAM}/datasets/ds_bbbbbb/versions/2`, "", "Deleted version 2 of dataset bbbbb"],
  ["change_role", `${TEAM}/members/user_ccccc`, '{"role": "viewer"}', "Changed role of member ccccc"],
  ["create_service_key", `${TEAM}/service-accounts/user_ccccc/keys`, '{"name": "ci"}', "Created key ci of service account ccccc"],
  ["create_invitation", `${TEAM}/invitations`, '{"email": "bob@example.org", "role": "editor"}', "Invited bob@example.org"],
  ["rename_team", TEAM, '{"name": "The lab"}', "Renamed team lab to The lab"],
  ["delete_team", TEAM, "", "Deleted team lab"],
  ["decide_device_login", "/api/v1/me/device", '{"user_code": "ABCD", "approve": true}', "Approved a device sign-in"],
  ["decide_device_login", "/api/v1/me/device", '{"user_code": "ABCD", "approve": false}', "Denied a device sign-in"],
  ["unlink_identity", "/api/v1/me/identities/ident_ddddd", "", "Unlinked identity ddddd"],
  ["sign_in", "/api/v1/auth/sign-in", '{"email": "bob@example.org", "password": "..."}', "Signed in as bob@example.org"],
  ["leave_team", `${TEAM}/members/me`, "", "Left team"],
])("%s is a sentence (%#)", (action, path, details, sentence) => {
  const parts = sentenceOf(action, path, details);
  expect(parts.map(({ text }) => text).join(" ")).toBe(sentence);
});

const NAMES = new Map([
  ["run_aavm77m", "pilot"],
  ["ckpt_bb4kq2p", "step 40"],
  ["run_b", "probe"],
]);

it.each([
  ["delete_checkpoint", `${TEAM}/runs/run_aavm77m/checkpoints/ckpt_bb4kq2p`, "", "Deleted checkpoint step 40 of run pilot"],
  ["clone_run", `${TEAM}/runs/run_aavm77m/clone`, '{"name": "pilot-2"}', "Cloned run pilot as pilot-2"],
  ["act_on_runs", `${TEAM}/runs/bulk`, '{"action": "pause", "runs": ["run_aavm77m"]}', "Asked to pause run pilot"],
  ["act_on_runs", `${TEAM}/runs/bulk`, '{"action": "pause", "runs": ["run_aavm77m", "run_b"]}', "Asked to pause 2 runs: pilot, probe"],
])("%s has the names that are known (%#)", (action, path, details, sentence) => {
  const parts = sentenceOf(action, path, details, NAMES);
  expect(parts.map(({ text }) => text).join(" ")).toBe(sentence);
});

it("knows the current names, and those that deletions recorded", () => {
  const bulk = { action: "act_on_runs", path: `${TEAM}/runs/bulk`, names: {} };
  const names = namesOf([
    { ...bulk, details: '{"names": ["gone", "left"], "action": "delete", "runs": ["run_c", "run_d"]}' },
    { ...bulk, details: '{"names": ["one"], "action": "delete", "runs": ["run_e", "run_f"]}' },
    { action: "delete_dataset", path: `${TEAM}/datasets/ds_g`, details: '{"name": "corpus"}', names: {} },
    { action: "edit_run", path: `${TEAM}/runs/run_a`, details: '{"name": "before"}', names: { run_a: "after" } },
  ]);
  expect(Object.fromEntries(names)).toEqual({ run_c: "gone", run_d: "left", ds_g: "corpus", run_a: "after" });
});

/** Operations of every route that can change something, from the API's schema. */
function changingOperations(): string[] {
  const schema = readFileSync(join(import.meta.dirname, "../../../../src/api/schema.d.ts"), "utf8");
  return [...schema.matchAll(/^ +(?:post|put|patch|delete): operations\["([a-z_]+)"\]/gm)].map(([, operation = ""]) => operation);
}

/** How sentences of the log begin. */
const PAST_TENSES = new Set(
  (
    "Added Asked Cancelled Changed Checked Claimed Cleaned Cloned Committed Confirmed Counted Created Deleted Edited Ended Estimated Failed Finished Forked Invited Joined Left Marked " +
    "Moved Overrode Paused Planned Prepared Previewed Put Released Removed Renamed Renewed Reordered Reported Requested Responded Resumed Revoked Saved Sent Signed Started Stored Submitted Tested Unlinked Used Validated"
  ).split(" "),
);

it("tells every change of the API in the past tense and without the API's names", () => {
  const operations = changingOperations();
  expect(operations.length).toBeGreaterThan(60);
  const beginnings = [...operations, "failed_sign_in"].map((operation) => actionLabel(operation, "").split(" ")[0] ?? "");
  expect(beginnings.filter((word) => !PAST_TENSES.has(word))).toEqual([]);
  expect(operations.filter((operation) => actionLabel(operation, "").includes("_"))).toEqual([]);
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
  ["/api/v1/teams/lab", [{ kind: "team", id: "lab" }]],
])("finds the objects in a path (%#)", (path, objects) => {
  expect(objectsOf(path)).toEqual(objects);
});
