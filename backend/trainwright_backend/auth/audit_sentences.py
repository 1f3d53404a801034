"""Entries of the audit log as sentences: `Deleted checkpoint step 40 of run pilot`."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainwright.contracts.api.audit import AuditEntry, AuditObject, SentencePart
from trainwright.contracts.api.people import LinkPurpose

_LABELS = {
    "act_on_runs": "Changed several runs",
    "change_profile": "Changed name to",
    "create_dataset_version": "Created version",
    "create_invitation": "Invited",
    "create_key": "Created API key",
    "create_preparation": "Prepared dataset",
    "create_service_key": "Created key",
    "decide_device_login": "Responded to a device sign-in",
    "delete_dataset_version": "Deleted version",
    "delete_key": "Revoked API key",
    "delete_service_key": "Revoked key",
    "delete_used_key": "Revoked own API key",
    "end_session": "Signed out session",
    "failed_sign_in": "Failed to sign in",
    "finish_provider_sign_in": "Signed in with the identity provider",
    "mail_link": "Requested a sign-in link",
    "mark_notices_read": "Marked notices as read",
    "redeem_device_code": "Created API key by device sign-in",
    "reorder": "Reordered queue",
    "retain_checkpoints": "Cleaned up checkpoints",
    "set_limits": "Changed team limits",
    "set_member_limits": "Changed limits",
    "set_quota": "Changed slot limit",
    "set_storage": "Changed upload limit",
    "start_identity_link": "Started linking an identity",
    "use_link": "Used a one-time link",
}
"""Operations whose names say too little, or need more than another tense."""

_LABELS_BY_FLAG = {
    "decide_device_login": ("approve", "Approved a device sign-in", "Denied a device sign-in"),
    "edit_checkpoint": ("pinned", "Pinned checkpoint", "Unpinned checkpoint"),
}
"""Operations that the value of a field in the request divides in two."""

_LINK_LABELS = {
    LinkPurpose.FIRST_OWNER: "Created the first account",
    LinkPurpose.INVITATION: "Accepted an invitation",
    LinkPurpose.SIGN_IN: "Signed in with a link",
}
"""What a one-time link did. Older versions did not record its purpose."""

_PREVIEW_LABELS = {
    "delete_checkpoint": "Previewed deletion of checkpoint",
    "delete_run": "Previewed deletion of run",
    "retain_checkpoints": "Previewed clean-up of checkpoints",
}
"""Entries of requests that only asked what a change would free, which older versions recorded too."""

_NAME_PREPOSITIONS = {
    "clone_run": "as",
    "failed_sign_in": "as",
    "fork_run": "as",
    "rename_team": "to",
    "sign_in": "as",
    "use_link": "as",
}
"""What follows the object if the name in the request is not the object's own."""

_PAST_TENSES = {
    "cancel": "cancelled",
    "commit": "committed",
    "leave": "left",
    "override": "overrode",
    "plan": "planned",
    "put": "put",
    "send": "sent",
    "submit": "submitted",
}
_MAX_NAMED_RUNS = 5

_QUERY = re.compile(r"^\?\S* ")
_DRY_RUN = re.compile(r"^\?(\S*&)?dry_run=true\b")
_BULK_ACTION = re.compile(r'"(?:action|verb)": "([a-z]+)"')
_NAME_OF_LONG_SPEC = re.compile(r'^\{(?:"created": "\w+", )?(?:"schema_version": \d+, )?"name": "([^"\\]*)"')
"""The name in a spec whose end was cut off, so that it is not JSON."""

_TEAM_ITSELF = re.compile(r"/api/v1/teams/([^/]+)")
_OUTER_PATH = re.compile(r"^/api/v1(/teams/[^/]+)?")
_CREATED = re.compile(r'^\{"created": "(([a-z]+)_\w+)"')
_CREATED_KINDS = {"ds": "dataset", "hook": "webhook", "run": "run"}
_COLLECTION_AND_ID = re.compile(r"/([a-z-]+)s/([a-z]+_[^/]+|\d+)")


def sentence_of(entry: AuditEntry, names: Mapping[str, str]) -> list[SentencePart]:
    """What an entry did, in parts that spaces join, with the names that the request gave or ``names`` has by id, otherwise ids."""
    if entry.action == "act_on_runs":
        return _bulk_sentence(entry.details, names)
    label, name = label_of(entry.action, entry.details), _given_name(entry.details)
    objects, created = _objects_in(entry.path)[::-1], _created_object(entry.details)
    if name is None and created is not None:
        name = names.get(created.id, created.id)
    if name is None:
        return [_words(label), *_described(label, objects, names)]
    preposition = _NAME_PREPOSITIONS.get(entry.action)
    if preposition is not None:
        own = SentencePart(text=name, object=created)
        return [_words(label), *_described(label, objects, names), _words(preposition), own]
    if created is not None:
        objects = [created, *objects]
    if objects and label.endswith(objects[0].kind):
        named, *others = objects
        return [_words(label), SentencePart(text=name, object=named), *_described("", others, names)]
    return [_words(label), _words(name), *_described("", objects, names)]


def recorded_names(entries: Iterable[AuditEntry]) -> dict[str, str]:
    """Names that deletions among the entries recorded, by id."""
    return {id: name for entry in entries for id, name in _deleted_names(entry).items()}


def label_of(action: str, details: str) -> str:
    """`Cancelled run` of `cancel_run`."""
    if _is_preview(action, details):
        return _PREVIEW_LABELS[action]
    if action in _LABELS_BY_FLAG:
        flag, yes, no = _LABELS_BY_FLAG[action]
        value = _body_of(details).get(flag)
        if isinstance(value, bool):
            return yes if value else no
    if action == "use_link" and (label := _label_of_link(_body_of(details))) is not None:
        return label
    if action in _LABELS:
        return _LABELS[action]
    verb, *nouns = action.split("_")
    past = _PAST_TENSES.get(verb, f"{verb}d" if verb.endswith("e") else f"{verb}ed")
    return " ".join((past.capitalize(), *nouns))


def _label_of_link(body: Mapping[str, Any]) -> str | None:
    label = _LINK_LABELS.get(body.get("purpose", ""))
    sets_password = body.get("purpose") == LinkPurpose.SIGN_IN and body.get("password") is not None
    return f"{label} and set a new password" if sets_password else label


def _is_preview(action: str, details: str) -> bool:
    if action == "retain_checkpoints":
        return _body_of(details).get("dry_run") is not False
    return action in _PREVIEW_LABELS and _DRY_RUN.match(details) is not None


def _words(text: str) -> SentencePart:
    return SentencePart(text=text)


def _named(item: AuditObject, names: Mapping[str, str], end: str = "") -> SentencePart:
    return SentencePart(text=names.get(item.id, item.id) + end, object=item)


def _described(
    label: str, objects: Iterable[AuditObject], names: Mapping[str, str]
) -> Iterator[SentencePart]:
    """The objects from the innermost one outwards. ``label`` may end with the kind of the first one already."""
    for number, item in enumerate(objects):
        if number > 0 or not label.endswith(item.kind):
            yield _words(f"of {item.kind}")
        yield _named(item, names)


def _bulk_sentence(details: str, names: Mapping[str, str]) -> list[SentencePart]:
    """Some of the runs may have refused it. Details of very many runs are cut off, so that their number is unknown."""
    found = _BULK_ACTION.search(details)
    label = f"Asked to {found[1] if found else 'change'}"
    runs = _body_of(details).get("runs")
    if not isinstance(runs, list):
        return [_words(f"{label} several runs")]
    items = [AuditObject(kind="run", id=str(run)) for run in runs]
    if len(items) == 1:
        return [_words(f"{label} run"), _named(items[0], names)]
    counted = f"{label} {len(items):,} runs"
    if len(items) > _MAX_NAMED_RUNS or not any(item.id in names for item in items):
        return [_words(counted)]
    *others, last = items
    return [_words(f"{counted}:"), *(_named(item, names, ",") for item in others), _named(last, names)]


def _deleted_names(entry: AuditEntry) -> dict[str, str]:
    body, objects = _body_of(entry.details), _objects_in(entry.path)
    if entry.action == "act_on_runs":
        runs, names = body.get("runs"), body.get("names")
        # Fewer names than runs: some were refused, and it is not recorded which.
        if not isinstance(runs, list) or not isinstance(names, list) or len(runs) != len(names):
            return {}
        return {str(run): str(name) for run, name in zip(runs, names, strict=True)}
    is_deletion = bool(objects) and entry.action == f"delete_{objects[-1].kind.replace(' ', '_')}"
    name = body.get("name")
    return {objects[-1].id: name} if is_deletion and isinstance(name, str) else {}


def _given_name(details: str) -> str | None:
    """The name, email address or address of a webhook that the request gave."""
    body = _body_of(details)
    if not body:
        found = _NAME_OF_LONG_SPEC.match(_QUERY.sub("", details))
        return found[1] if found else None
    return next((body[key] for key in ("name", "email", "url") if isinstance(body.get(key), str)), None)


def _body_of(details: str) -> dict[str, Any]:
    """The request's JSON object, without the query of its address, with which details begin. Empty if there is none."""
    try:
        body = json.loads(_QUERY.sub("", details))
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _created_object(details: str) -> AuditObject | None:
    """What the request created, which is not in its path; None in entries of older versions."""
    found = _CREATED.match(_QUERY.sub("", details))
    kind = _CREATED_KINDS.get(found[2]) if found else None
    return AuditObject(kind=kind, id=found[1]) if found and kind else None


def _objects_in(path: str) -> list[AuditObject]:
    """What the path of a request names, outermost first; the team only if it is the object itself."""
    team = _TEAM_ITSELF.fullmatch(path)
    if team is not None:
        return [AuditObject(kind="team", id=team[1])]
    found = _COLLECTION_AND_ID.findall(_OUTER_PATH.sub("", path))
    return [AuditObject(kind=re.sub("ie$", "y", kind).replace("-", " "), id=id) for kind, id in found]
