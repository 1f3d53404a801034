"""The audit log: every change that a person makes by a request, in the transaction of the change, and failed sign-ins.

Each team has a chain of entries, and so do the changes outside of teams. The hash of an entry covers its fields and the hash
before it, keyed by the server's secret, so nobody who can only write to the database can change, insert or drop an entry unnoticed,
except at the end of a chain: `trainwright-server audit verify` prints the ends, to be kept elsewhere.

Heartbeats and other messages of nodes are not in it, nor are the chunks of an upload and dry runs.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import Request
from pydantic import SecretStr
from sqlalchemy import Select, and_, func, or_, select

from trainwright.contracts.api.audit import AuditEntry as AuditEntryOut
from trainwright.contracts.api.envelopes import Page
from trainwright_backend.auth.service import account_by_email
from trainwright_backend.auth.tables import Account, AuditEntry, AuditHead, Team
from trainwright_backend.core.db import Database, Read, Write, now, storable
from trainwright_backend.core.errors import SECRET_FIELDS, Invalid, request_id_of
from trainwright_backend.core.ids import parse_id, public_id
from trainwright_backend.core.policy import BODY_KEY
from trainwright_backend.core.security import keyed_hash
from trainwright_backend.core.text_search import contains_any

NO_TEAM = UUID(int=0)
CALLER_KEY = "trainwright.caller"
TEAM_KEY = "trainwright.team"
"""The team that a policy found."""
UNCHANGED_KEY = "trainwright.unchanged"
"""The request changed nothing: it only reported what it would change, or all of it was refused."""
MAX_DETAILS = 2_000
EXPORTED_AT_ONCE = 500
MAX_DELETIONS = 5_000
"""Deletions that are read for the names of what an older page is about."""
CURRENT_FIELDS = {"names", "key_name", "sentence"}
"""Fields that depend on what exists now. The export leaves them out."""
HIDDEN = "..."
"""Instead of a secret, in ASCII, as all details are."""
ADDRESS_FIELD = "url"
ADDRESS_PATH = re.compile(r"(?<=[^/:])[/?#].+$", re.DOTALL)
"""Path, query and fragment of an address, which may contain a token."""
BROWSER = "browser"
FAILED_SIGN_IN = "failed_sign_in"
NOT_SIGNED_IN = "not signed in"
"""The name in the entry of a failed sign-in, because the person may not be the owner of the account."""
USER_PREFIX = "user_"


@dataclass(frozen=True)
class Actor:
    """Who makes a request, and by what."""

    user_id: UUID
    name: str
    via: str
    """`browser`, or the prefix of the API key."""


@dataclass(frozen=True)
class Search:
    """Which entries of a chain to list. Empty: all."""

    words: str = ""
    """Each is in the name, `via`, action, path, address or details."""
    actor: str = ""
    """Name, or public id, of the account."""
    action: str = ""
    since: datetime | None = None


@dataclass(frozen=True)
class BrokenChain:
    """An entry whose hash does not follow from the entries before it, or a head that is not the last entry."""

    chain: UUID
    sequence: int


def remember_caller(request: Request, account: Account, via: str) -> None:
    """Note who makes the request, for `record`."""
    name = f"{account.name} (service account)" if account.is_service else account.name
    request.scope[CALLER_KEY] = Actor(account.id, name, via)


def mark_as_unchanged(request: Request) -> None:
    """Note that the request changes nothing, so that `record` skips it."""
    request.scope[UNCHANGED_KEY] = True


def record(session: Write, request: Request, **extra: str) -> None:
    """Append what the request changes, as the last statements of its transaction. Requests that changed nothing, and those of nodes or
    without a caller, are skipped.

    Args:
        extra: more fields for the entry's details.
    """
    caller: Actor | None = request.scope.get(CALLER_KEY)
    if caller is not None and not request.scope.get(UNCHANGED_KEY, False):
        _append_request(session, request, caller, getattr(request.scope.get("route"), "name", ""), extra)


def record_failed_sign_in(database: Database, request: Request, email: str) -> None:
    """Append that a password of the account with this address was wrong.

    An address without an account leaves no entry, or anybody could fill the log. `passwords.MAX_ATTEMPTS` limits the
    others. Call it after the response: the time until then must not tell whether the address has an account.
    """
    with database.read() as session:
        account = account_by_email(session, email)
    if account is not None:
        with database.write() as session:
            _append_request(session, request, Actor(account.id, NOT_SIGNED_IN, BROWSER), FAILED_SIGN_IN)


def _append_request(
    session: Write, request: Request, caller: Actor, action: str, extra: Mapping[str, str] | None = None
) -> None:
    entry = AuditEntry(
        chain=_chain_of(session, request),
        time=now(),
        user_id=caller.user_id,
        user_name=caller.name,
        via=caller.via,
        address=(request.client.host if request.client else "")[:64],
        action=action[:80],
        path=storable(request.url.path),
        details=storable(_details(session, request, extra or {})),
        request_id=request_id_of(request),
    )
    append(session, request.app.state.settings.secret_key, entry)


def append(session: Write, secret: SecretStr, entry: AuditEntry) -> None:
    """Give an entry its number and hash, and store it at the end of its chain."""
    session.flush()
    empty = session.insert(AuditHead).values(chain=entry.chain, sequence=0, hash="")
    session.execute(empty.on_conflict_do_nothing())
    head = session.get_one(AuditHead, entry.chain, with_for_update=True, populate_existing=True)
    entry.sequence = head.sequence + 1
    entry.hash = _hash(secret, head.hash, entry)
    session.add(entry)
    head.sequence, head.hash = entry.sequence, entry.hash
    session.flush()


def list_entries(
    session: Read, chain: UUID, search: Search, limit: int, cursor: str | None
) -> Page[AuditEntryOut]:
    """A page of the entries of a chain that match, newest first.

    Raises:
        Invalid: the cursor is not a sequence number.
        NotFound: the actor begins as an id, but is none.
    """
    found = _matching(chain, search).order_by(AuditEntry.sequence.desc()).limit(limit + 1)
    if cursor is not None:
        if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
            raise Invalid.at(
                "cursor", "This cursor is not valid here: use `next_cursor` of the previous page.", cursor
            )
        found = found.where(AuditEntry.sequence < int(cursor))
    rows = session.scalars(found).all()
    items = [show_entry(row) for row in rows[:limit]]
    return Page[AuditEntryOut](
        items=items, next_cursor=str(items[-1].sequence) if len(rows) > limit else None
    )


def list_deletions(session: Read, chain: UUID, after: int) -> list[AuditEntryOut]:
    """Deletions with a number above ``after``, oldest first. At most `MAX_DELETIONS`."""
    of_several = and_(AuditEntry.action == "act_on_runs", AuditEntry.details.contains('"names": ['))
    is_deletion = or_(AuditEntry.action.startswith("delete_", autoescape=True), of_several)
    found = select(AuditEntry).where(AuditEntry.chain == chain, AuditEntry.sequence > after, is_deletion)
    rows = session.scalars(found.order_by(AuditEntry.sequence).limit(MAX_DELETIONS))
    return [show_entry(row) for row in rows]


def export_lines(database: Database, chain: UUID) -> Iterator[str]:
    """All entries of a chain, oldest first, as JSON lines. No session is open while the client receives them."""
    entries = select(AuditEntry).where(AuditEntry.chain == chain).order_by(AuditEntry.sequence)
    last = 0
    while True:
        with database.read() as session:
            page = session.scalars(entries.where(AuditEntry.sequence > last).limit(EXPORTED_AT_ONCE)).all()
        if not page:
            return
        yield from (f"{show_entry(row).model_dump_json(exclude=CURRENT_FIELDS)}\n" for row in page)
        last = page[-1].sequence


def show_entry(row: AuditEntry) -> AuditEntryOut:
    """An entry as the API returns it."""
    return AuditEntryOut(
        sequence=row.sequence,
        time=row.time,
        user=None if row.user_id is None else public_id("user", row.user_id),
        name=row.user_name,
        via=row.via,
        address=row.address,
        action=row.action,
        path=row.path,
        details=row.details,
        request_id=row.request_id,
        hash=row.hash,
    )


def list_heads(session: Read) -> list[AuditHead]:
    """The ends of all chains."""
    return list(session.scalars(select(AuditHead).order_by(AuditHead.chain)))


def chain_names(session: Read) -> dict[UUID, str]:
    """Names of the chains for people: the slug of a team, or the id of one that is deleted, as its slug can be used again."""
    slugs = {row.id: row.slug for row in session.execute(select(Team.id, Team.slug))}
    chains = set(session.scalars(select(AuditEntry.chain).distinct())) | {
        head.chain for head in list_heads(session)
    }
    return {chain: _chain_name(chain, slugs.get(chain)) for chain in chains}


def _chain_name(chain: UUID, slug: str | None) -> str:
    if chain == NO_TEAM:
        return "the site"
    return f"a deleted team, {chain}" if slug is None else f"team {slug}"


def verify(session: Read, secret: SecretStr) -> list[BrokenChain]:
    """The first broken entry of each broken chain."""
    heads = {head.chain: head for head in list_heads(session)}
    chains = set(session.scalars(select(AuditEntry.chain).distinct())) | heads.keys()
    return [
        broken for chain in sorted(chains) if (broken := _verify(session, secret, chain, heads.get(chain)))
    ]


def _verify(session: Read, secret: SecretStr, chain: UUID, head: AuditHead | None) -> BrokenChain | None:
    sequence, before = 0, ""
    rows = select(AuditEntry).where(AuditEntry.chain == chain).order_by(AuditEntry.sequence)
    for row in session.scalars(rows.execution_options(yield_per=500)):
        if row.sequence != sequence + 1 or row.hash != _hash(secret, before, row):
            return BrokenChain(chain, sequence + 1)
        sequence, before = row.sequence, row.hash
    if head is None or (head.sequence, head.hash) != (sequence, before):
        return BrokenChain(chain, sequence + 1)
    return None


def _matching(chain: UUID, search: Search) -> Select[AuditEntry]:
    found = select(AuditEntry).where(AuditEntry.chain == chain)
    columns = (
        AuditEntry.user_name,
        AuditEntry.via,
        AuditEntry.action,
        AuditEntry.path,
        AuditEntry.address,
        AuditEntry.details,
    )
    for word in search.words.split():
        found = found.where(contains_any(columns, _forms(word)))
    if search.actor.startswith(USER_PREFIX):
        found = found.where(AuditEntry.user_id == parse_id("user", search.actor))
    elif search.actor:
        found = found.where(func.lower(AuditEntry.user_name) == func.lower(search.actor))
    if search.action:
        found = found.where(AuditEntry.action == search.action)
    return found if search.since is None else found.where(AuditEntry.time >= search.since)


def _forms(word: str) -> set[str]:
    """How a word appears in an entry. Details have the letters outside ASCII as escapes of JSON."""
    return {word, *(json.dumps(form)[1:-1] for form in (word, word.lower(), word.upper(), word.capitalize()))}


def _chain_of(session: Read, request: Request) -> UUID:
    """The team of the address. If the request has deleted it, nobody could read its chain, so the entry is for site admins."""
    known: UUID | None = request.scope.get(TEAM_KEY)
    slug = request.path_params.get("team")
    if known is None and slug is None:
        return NO_TEAM
    team = Team.slug == slug if known is None else Team.id == known
    return session.scalar(select(Team.id).where(team)) or NO_TEAM


def _details(session: Write, request: Request, extra: Mapping[str, str]) -> str:
    """The query and the JSON body, without secrets, the ``extra`` fields, the id of what was created and the names of what was deleted. A long body is cut
    off, but no name."""
    query = f"?{request.url.query}" if request.url.query else ""
    body: bytes = request.scope.get(BODY_KEY, b"")
    try:
        given = json.loads(body) if body else None
    except ValueError:
        given = None
    names = list(dict.fromkeys(session.deleted_names))
    most = MAX_DETAILS + len(json.dumps(names))
    if names:
        given = {"name": names[0]} if given is None else {"names": names} | given
    if extra:
        given = {**extra, **(given or {}), **extra}  # first, and not replaced by the request's
    if session.created_id:
        given = {"created": session.created_id} | (given or {})
    shown = "" if given is None else json.dumps(_without_secrets(given), ensure_ascii=True)
    text = f"{query} {shown}".strip()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shown(key, item) for key, item in value.items()}
    return [_without_secrets(item) for item in value] if isinstance(value, list) else value


def _shown(key: str, value: Any) -> Any:
    if key in SECRET_FIELDS:
        return HIDDEN
    if key == ADDRESS_FIELD and isinstance(value, str):
        return ADDRESS_PATH.sub(f"/{HIDDEN}", value)
    return _without_secrets(value)


def _hash(secret: SecretStr, before: str, entry: AuditEntry) -> str:
    fields = [
        before,
        str(entry.chain),
        entry.sequence,
        entry.time.isoformat(),
        str(entry.user_id),
        entry.user_name,
        entry.via,
        entry.address,
        entry.action,
        entry.path,
        entry.details,
        entry.request_id,
    ]
    return keyed_hash(secret, "audit", json.dumps(fields))
