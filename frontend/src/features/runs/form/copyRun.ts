/**
 * Runs made from another run, by cloning it from step 0 or forking it from a checkpoint. Only the differences in
 * configuration are sent.
 */
import { api, body } from "@/api/client";
import { ApiError } from "@/api/errors";
import type { Run } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";
import { leaves, type Json } from "@/features/runs/spec/specFields";

const DATASET = "data.dataset";
const VERSION = "data.version";
const VOCABULARY = "data.tokenizer.vocabulary";

/**
 * Fields of a full spec that differ from the parent's, by dotted path. The name does not count. With another
 * dataset its version is always sent, even if the number is the same.
 */
export function specChanges(parent: SpecJson, edited: SpecJson): Record<string, Json> {
  const before = new Map(leaves(parent as Record<string, Json>, ""));
  const after = new Map(leaves(edited as Record<string, Json>, ""));
  const changed = [...after].filter(([path, value]) => JSON.stringify(before.get(path)) !== JSON.stringify(value));
  const removed = [...before.keys()].filter((path) => !after.has(path) && !hasNestedField(path, after) && !isInNullSection(path, after));
  const changes = Object.fromEntries([...changed, ...removed.map((path): [string, Json] => [path, null])].filter(([path]) => path !== "name"));
  return DATASET in changes ? { ...changes, [VERSION]: after.get(VERSION) ?? null } : changes;
}

/** A section that was null and is now set is represented by its fields. */
function hasNestedField(path: string, fields: ReadonlyMap<string, Json>): boolean {
  return [...fields.keys()].some((field) => field.startsWith(`${path}.`));
}

/** A field of a section that is now null is represented by the section. */
function isInNullSection(path: string, fields: ReadonlyMap<string, Json>): boolean {
  return [...fields].some(([field, value]) => value === null && path.startsWith(`${field}.`));
}

/**
 * How a fork differs from ``parent``. An empty vocabulary stays empty, because the API derives it from the
 * tokenizer for a submission and from the parent for a fork.
 */
function forkChanges(parent: SpecJson, draft: SpecJson, filled: SpecJson): Record<string, Json> {
  const changes = specChanges(parent, filled);
  const vocabulary = new Map(leaves(draft as Record<string, Json>, "")).get(VOCABULARY) ?? null;
  return vocabulary === null && VOCABULARY in changes ? { ...changes, [VOCABULARY]: null } : changes;
}

/** Creates a fork from a checkpoint. */
export async function forkRun(team: string, parent: Run, checkpoint: string, spec: SpecJson, key: string): Promise<Run> {
  const filled = await withDefaults(team, spec);
  return body(
    await api.POST("/api/v1/teams/{team}/runs/{run}/fork", {
      params: { path: { team, run: parent.id }, header: { "idempotency-key": key } },
      body: { name: filled.name, changes: forkChanges(parent.spec, spec, filled), checkpoint },
    }),
  );
}

/** Creates a clone of a run. */
export async function cloneRun(team: string, original: Run, spec: SpecJson, key: string): Promise<Run> {
  const filled = await withDefaults(team, spec);
  return body(
    await api.POST("/api/v1/teams/{team}/runs/{run}/clone", {
      params: { path: { team, run: original.id }, header: { "idempotency-key": key } },
      body: { name: filled.name, changes: specChanges(original.spec, filled) },
    }),
  );
}

/** The edited spec with defaults filled in, so that only real differences are sent. */
async function withDefaults(team: string, spec: SpecJson): Promise<Run["spec"]> {
  const { spec: filled, problems } = body(
    await api.POST("/api/v1/teams/{team}/runs/validate", { params: { path: { team } }, body: spec }),
  );
  if (filled === null || filled === undefined) {
    throw new ApiError(422, { detail: "The configuration is refused.", code: "invalid_request", errors: problems });
  }
  return filled;
}
