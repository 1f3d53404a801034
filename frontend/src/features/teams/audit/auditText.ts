/** An entry of the audit log in plain words. */

import type { AuditEntry } from "@/api/types";
import { capitalize, plural } from "@/lib/format";
import { shortId } from "@/lib/shortId";

/** Operations whose names say too little, or need more than another tense. */
const ACTION_LABELS: Record<string, string> = {
  act_on_runs: "Changed several runs",
  change_profile: "Changed name to",
  create_dataset_version: "Created version",
  create_invitation: "Invited",
  create_key: "Created API key",
  create_preparation: "Prepared dataset",
  create_service_key: "Created key",
  decide_device_login: "Responded to a device sign-in",
  delete_dataset_version: "Deleted version",
  delete_key: "Revoked API key",
  delete_service_key: "Revoked key",
  delete_used_key: "Revoked own API key",
  end_session: "Signed out session",
  failed_sign_in: "Failed to sign in",
  finish_provider_sign_in: "Signed in with the identity provider",
  mail_link: "Requested a sign-in link",
  mark_notices_read: "Marked notices as read",
  redeem_device_code: "Created API key by device sign-in",
  reorder: "Reordered queue",
  retain_checkpoints: "Cleaned up checkpoints",
  set_limits: "Changed team limits",
  set_member_limits: "Changed limits",
  set_quota: "Changed slot limit",
  set_storage: "Changed upload limit",
  start_identity_link: "Started linking an identity",
  use_link: "Used a one-time link",
};

/** What follows the object if the name in the request is not the object's own. */
const NAME_PREPOSITIONS: Record<string, string> = {
  clone_run: "as",
  failed_sign_in: "as",
  fork_run: "as",
  rename_team: "to",
  sign_in: "as",
  use_link: "as",
};

/** Entries of requests that only asked what a change would free, which older versions recorded too. */
const PREVIEW_LABELS: Record<string, string> = {
  delete_checkpoint: "Previewed deletion of checkpoint",
  delete_run: "Previewed deletion of run",
  retain_checkpoints: "Previewed clean-up of checkpoints",
};

const IRREGULAR_PAST: Record<string, string> = {
  cancel: "cancelled",
  commit: "committed",
  leave: "left",
  override: "overrode",
  plan: "planned",
  put: "put",
  send: "sent",
  submit: "submitted",
};

/** `Cancelled run` of `cancel_run` */
export function actionLabel(action: string, details: string): string {
  if (isPreview(action, details)) return PREVIEW_LABELS[action] ?? action;
  if (action === "decide_device_login") return labelByFlag(details, "approve", "Approved a device sign-in", "Denied a device sign-in") ?? "Responded to a device sign-in";
  if (action === "edit_checkpoint") return labelByFlag(details, "pinned", "Pinned checkpoint", "Unpinned checkpoint") ?? "Edited checkpoint";
  if (action in ACTION_LABELS) return ACTION_LABELS[action] ?? action;
  const [verb = "", ...nouns] = action.split("_");
  return capitalize([pastTense(verb), ...nouns].join(" "));
}

function labelByFlag(details: string, flag: string, yes: string, no: string): string | undefined {
  const value = bodyOf(details)?.[flag];
  return typeof value === "boolean" ? (value ? yes : no) : undefined;
}

function isPreview(action: string, details: string): boolean {
  if (!(action in PREVIEW_LABELS)) return false;
  return action === "retain_checkpoints" ? bodyOf(details)?.["dry_run"] !== false : /^\?(\S*&)?dry_run=true\b/.test(details);
}

function pastTense(verb: string): string {
  return IRREGULAR_PAST[verb] ?? (verb.endsWith("e") ? `${verb}d` : `${verb}ed`);
}

/** A part of a sentence. With an object, it is the object's name or short id. */
export interface SentencePart {
  text: string;
  object?: AuditObject;
}

/** Names of objects by id. */
export type ObjectNames = ReadonlyMap<string, string>;

const NO_NAMES: ObjectNames = new Map();

/**
 * `Deleted checkpoint step 40 of run pilot`, in parts: what an entry did, with names where the request gave one or they
 * are known, otherwise with the ends of ids.
 */
export function sentenceOf(action: string, path: string, details: string, names: ObjectNames = NO_NAMES): SentencePart[] {
  if (action === "act_on_runs") return bulkSentence(details, names);
  const label = actionLabel(action, details);
  const objects = objectsOf(path).reverse();
  const name = givenName(details);
  const created = createdObject(details);
  if (name === undefined) return [{ text: label }, ...objectParts(label, objects, names)];
  const preposition = NAME_PREPOSITIONS[action];
  if (preposition !== undefined) return [{ text: label }, ...objectParts(label, objects, names), { text: preposition }, nameOf(name, created)];
  const [named, ...others] = created === undefined ? objects : [created, ...objects];
  if (named !== undefined && label.endsWith(named.kind)) return [{ text: label }, { text: name, object: named }, ...objectParts("", others, names)];
  return [{ text: label }, { text: name }, ...objectParts("", objects, names)];
}

function nameOf(name: string, object: AuditObject | undefined): SentencePart {
  return object === undefined ? { text: name } : { text: name, object };
}

/** The label names the kind of the first object already, or not. */
function objectParts(label: string, objects: readonly AuditObject[], names: ObjectNames): SentencePart[] {
  return objects.flatMap((object, index) => {
    const id = { text: names.get(object.id) ?? (object.kind === "team" ? object.id : shortId(object.id)), object };
    return index === 0 && label.endsWith(object.kind) ? [id] : [{ text: `of ${object.kind}` }, id];
  });
}

const BULK_ACTION = /"(?:action|verb)": "([a-z]+)"/;

/** What was asked for: some of the runs may have refused it. Details of very many runs are cut off, so that their number is unknown. */
function bulkSentence(details: string, names: ObjectNames): SentencePart[] {
  const action = BULK_ACTION.exec(details)?.[1] ?? "change";
  const label = `Asked to ${action}`;
  const runs: unknown = bodyOf(details)?.["runs"];
  if (!Array.isArray(runs)) return [{ text: `${label} several runs` }];
  const ids = runs.filter((id) => typeof id === "string");
  const parts = ids.map((id, index) => ({ text: (names.get(id) ?? shortId(id)) + (index < ids.length - 1 ? "," : ""), object: { kind: "run", id } }));
  if (ids.length === 1) return [{ text: `${label} run` }, ...parts];
  const counted = `${label} ${plural(runs.length, "run")}`;
  return ids.some((id) => names.has(id)) && ids.length <= MAX_NAMED_RUNS ? [{ text: `${counted}:` }, ...parts] : [{ text: counted }];
}

const MAX_NAMED_RUNS = 5;

/**
 * Names of what the entries are about: the current ones, and those that deletions recorded. A deletion is newer than the
 * other entries about its object, so that it is among them, unless a search left it out.
 */
export function namesOf(entries: readonly Pick<AuditEntry, "action" | "path" | "details" | "names">[]): ObjectNames {
  const names = new Map<string, string>();
  for (const { action, path, details, names: current } of entries) {
    for (const [id, name] of Object.entries(current)) names.set(id, name);
    for (const [id, name] of deletedNames(action, path, details)) names.set(id, name);
  }
  return names;
}

function deletedNames(action: string, path: string, details: string): [string, string][] {
  const body = bodyOf(details);
  if (action === "act_on_runs") {
    const { names, runs } = body ?? {};
    // Fewer names than runs: some were refused, and it is not recorded which.
    if (!Array.isArray(names) || !Array.isArray(runs) || names.length !== runs.length) return [];
    return runs.map((id, index) => [String(id), String(names[index])]);
  }
  const name = body?.["name"];
  const object = objectsOf(path).at(-1);
  return action === `delete_${object?.kind}` && object !== undefined && typeof name === "string" ? [[object.id, name]] : [];
}

/** The name of a long spec, whose end was cut off, so that it is not JSON. */
const NAME_OF_LONG_SPEC = /^\{(?:"created": "\w+", )?(?:"schema_version": \d+, )?"name": "([^"\\]*)"/;

/** The name, email address or address of a webhook that the request gave; undefined if it gave none. */
export function givenName(details: string): string | undefined {
  const given = bodyOf(details);
  if (given === null) return NAME_OF_LONG_SPEC.exec(details.replace(QUERY, ""))?.[1];
  return [given["name"], given["email"], given["url"]].find((value) => typeof value === "string");
}

const CREATED = /^\{"created": "((\w+?)_\w+)"/;
const CREATED_KINDS: Record<string, string> = { ds: "dataset", hook: "webhook", run: "run" };

/** What the request created, which is not in its path; undefined in entries of older versions. */
function createdObject(details: string): AuditObject | undefined {
  const [, id = "", prefix = ""] = CREATED.exec(details.replace(QUERY, "")) ?? [];
  const kind = CREATED_KINDS[prefix];
  return kind === undefined ? undefined : { kind, id };
}

/** `role: viewer, name: Ada` of an object in JSON; anything else as it is. */
export function detailsText(details: string): string {
  const given = parseObject(details);
  if (given === null) return details;
  return Object.entries(given)
    .map(([key, value]) => `${key.replaceAll("_", " ")}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

const QUERY = /^\?\S* /;

/** The request's body; details begin with the query of its address, if it had one. */
function bodyOf(details: string): Record<string, unknown> | null {
  return parseObject(details.replace(QUERY, ""));
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === "object" && parsed !== null && !Array.isArray(parsed) ? (parsed as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

export interface AuditObject {
  /** `run`, `service account` */
  kind: string;
  id: string;
}

const COLLECTION_AND_ID = /\/([a-z-]+)s\/([a-z]+_[^/]+|\d+)/g;
const TEAM_ITSELF = /^\/api\/v1\/teams\/([^/]+)$/;

/** What the path of a request names, outermost first; a team only if it is the object itself. */
export function objectsOf(path: string): AuditObject[] {
  const team = TEAM_ITSELF.exec(path)?.[1];
  if (team !== undefined) return [{ kind: "team", id: team }];
  const within = path.replace(/^\/api\/v1(\/teams\/[^/]+)?/, "");
  return [...within.matchAll(COLLECTION_AND_ID)].map(([, kind = "", id = ""]) => ({ kind: kind.replaceAll("-", " ").replace(/ie$/, "y"), id }));
}
