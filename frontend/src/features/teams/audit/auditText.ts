/** An entry of the audit log in plain words. */

/** Operations whose names are unclear outside of the API. */
const ACTION_LABELS: Record<string, string> = {
  act_on_runs: "change several runs",
  create_key: "create API key",
  create_preparation: "prepare dataset",
  create_service_key: "create key of service account",
  decide_device_login: "answer a program that asks for a key",
  delete_key: "delete API key",
  delete_service_key: "delete key of service account",
  delete_used_key: "delete API key in use",
  edit_checkpoint: "pin or unpin checkpoint",
  end_session: "sign out another session",
  finish_provider_sign_in: "sign in with identity provider",
  redeem_device_code: "create API key of a program",
  reorder: "reorder queue",
  retain_checkpoints: "clean up checkpoints",
  set_limits: "change limits of team",
  set_member_limits: "change limits of member",
  set_quota: "change quota of slots",
  set_storage: "change limit of storage",
  unlink_identity: "unlink identity",
  use_link: "use one-time link",
};

/** `cancel run` of `cancel_run` */
export function actionLabel(action: string): string {
  return ACTION_LABELS[action] ?? action.replaceAll("_", " ");
}

/** The name of a long spec, whose end was cut off, so that it is not JSON. */
const NAME_OF_LONG_SPEC = /^\{(?:"schema_version": \d+, )?"name": "([^"\\]*)"/;

/** The name or email address that the request gave; undefined if it gave none. */
export function givenName(details: string): string | undefined {
  const given = parseObject(details);
  if (given === null) return NAME_OF_LONG_SPEC.exec(details)?.[1];
  return [given["name"], given["email"]].find((value) => typeof value === "string");
}

/** `role: viewer, name: Ada` of an object in JSON; anything else as it is. */
export function detailsText(details: string): string {
  const given = parseObject(details);
  if (given === null) return details;
  return Object.entries(given)
    .map(([key, value]) => `${key.replaceAll("_", " ")}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
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

/** What the path of a request names, outermost first; the team is not among them. */
export function objectsOf(path: string): AuditObject[] {
  const within = path.replace(/^\/api\/v1(\/teams\/[^/]+)?/, "");
  return [...within.matchAll(COLLECTION_AND_ID)].map(([, kind = "", id = ""]) => ({ kind: kind.replaceAll("-", " "), id }));
}
