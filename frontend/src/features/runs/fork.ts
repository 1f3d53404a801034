/** A run made from another, as its copy from step 0 or as its fork from a state: sent as what differs from that one's configuration. */
import { api, body } from "@/api/client";
import { ApiError } from "@/api/errors";
import type { Run } from "@/api/types";
import type { SpecJson } from "@/features/runs/queries";
import { leaves, type Json } from "@/lib/specForm";

const DATASET = "data.dataset";
const VERSION = "data.version";
const VOCABULARY = "data.tokenizer.vocabulary";

/**
 * Fields of the parent that a whole configuration has otherwise, by their dotted names. A run's name is no change. With
 * another dataset goes its version, though its number be the same.
 */
export function changesOf(parent: SpecJson, whole: SpecJson): Record<string, Json> {
  const before = new Map(leaves(parent as Record<string, Json>, ""));
  const after = new Map(leaves(whole as Record<string, Json>, ""));
  const changed = [...after].filter(([path, value]) => JSON.stringify(before.get(path)) !== JSON.stringify(value));
  const gone = [...before.keys()].filter((path) => !after.has(path) && !isAround(path, after) && !isWithin(path, after));
  const changes = Object.fromEntries([...changed, ...gone.map((path): [string, Json] => [path, null])].filter(([path]) => path !== "name"));
  return DATASET in changes ? { ...changes, [VERSION]: after.get(VERSION) ?? null } : changes;
}

/** A section that was null and is filled now is said by its fields. */
function isAround(path: string, fields: ReadonlyMap<string, Json>): boolean {
  return [...fields.keys()].some((field) => field.startsWith(`${path}.`));
}

/** A field of a section that is null now is said by the section. */
function isWithin(path: string, fields: ReadonlyMap<string, Json>): boolean {
  return [...fields].some(([field, value]) => value === null && path.startsWith(`${field}.`));
}

/**
 * What a fork of ``parent`` differs by. A vocabulary that is left open stays so: a submission has it from the tokenizer, a
 * fork from its parent, and which it is, is for the API to say.
 */
function forkChanges(parent: SpecJson, written: SpecJson, filled: SpecJson): Record<string, Json> {
  const changes = changesOf(parent, filled);
  const vocabulary = new Map(leaves(written as Record<string, Json>, "")).get(VOCABULARY) ?? null;
  return vocabulary === null && VOCABULARY in changes ? { ...changes, [VOCABULARY]: null } : changes;
}

/** Makes the fork of what is written, from this checkpoint. */
export async function forkRun(team: string, parent: Run, checkpoint: string, spec: SpecJson, key: string): Promise<Run> {
  const filled = await filledIn(team, spec);
  return body(
    await api.POST("/api/v1/teams/{team}/runs/{run}/fork", {
      params: { path: { team, run: parent.id }, header: { "idempotency-key": key } },
      body: { name: filled.name, changes: forkChanges(parent.spec, spec, filled), checkpoint },
    }),
  );
}

/** Makes the copy of a run that is like what is written. */
export async function cloneRun(team: string, original: Run, spec: SpecJson, key: string): Promise<Run> {
  const filled = await filledIn(team, spec);
  return body(
    await api.POST("/api/v1/teams/{team}/runs/{run}/clone", {
      params: { path: { team, run: original.id }, header: { "idempotency-key": key } },
      body: { name: filled.name, changes: changesOf(original.spec, filled) },
    }),
  );
}

/** What is written with its defaults, so that only what differs is sent. */
async function filledIn(team: string, spec: SpecJson): Promise<Run["spec"]> {
  const { spec: filled, problems } = body(
    await api.POST("/api/v1/teams/{team}/runs/validate", { params: { path: { team } }, body: spec }),
  );
  if (filled === null || filled === undefined) {
    throw new ApiError(422, { detail: "The configuration is refused.", code: "invalid_request", errors: problems });
  }
  return filled;
}
