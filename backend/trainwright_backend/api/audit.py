"""The audit logs of a team and of the installation."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError

from trainwright.contracts.api.audit import AuditEntry
from trainwright.contracts.api.envelopes import Page
from trainwright_backend.api.dependencies import CurrentDatabase, ReadSession
from trainwright_backend.api.object_names import ids_in, names_in_team, names_of_keys, names_of_site
from trainwright_backend.auth import audit
from trainwright_backend.auth.audit_sentences import recorded_names, sentence_of
from trainwright_backend.auth.policies import Owner, SiteManager
from trainwright_backend.core.db import Read, storable
from trainwright_backend.core.policy import GuardedRoute
from trainwright_backend.core.resource_router import ResourceRouter

router = ResourceRouter(tags=["audit"], route_class=GuardedRoute)

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""Some times of the first and the last year of Python's calendar are outside of it in UTC."""

Limit = Annotated[int, Query(ge=1, le=1_000)]
Cursor = Annotated[str | None, Query(max_length=200)]


def _not_a_number(given: object) -> object:
    """Pydantic also reads a number, as seconds since 1970."""
    if isinstance(given, str) and given.lstrip("+-").replace(".", "", 1).isdecimal():
        rule = "Write a time with its time zone, such as 2026-01-31T09:00:00Z"
        raise PydanticCustomError("datetime_parsing", rule)
    return given


async def searched(
    q: Annotated[
        str,
        Query(
            max_length=200,
            description="Words that the name, the API key's prefix or `browser`, action, path, address or details contain.",
        ),
    ] = "",
    actor: Annotated[
        str, Query(max_length=200, description="Name or id (`user_…`) of who made the change.")
    ] = "",
    action: Annotated[
        str, Query(max_length=80, description="Name of the operation, such as `submit_run`.")
    ] = "",
    since: Annotated[
        AwareDatetime | None,
        BeforeValidator(_not_a_number),
        Query(description="Only entries from this time on."),
    ] = None,
) -> audit.Search:
    if since is not None:
        since = min(max(since, EARLIEST), LATEST)
    return audit.Search(storable(q), storable(actor), storable(action), since)


Searched = Annotated[audit.Search, Depends(searched)]


@router.get("/teams/{team}/audit")
def list_audit(
    access: Owner, session: ReadSession, search: Searched, limit: Limit = 100, cursor: Cursor = None
) -> Page[AuditEntry]:
    """Who changed what in the team, newest first. For owners."""
    page = audit.list_entries(session, access.team_id, search, limit, cursor)
    return _described(
        session, access.team_id, page, lambda texts: names_in_team(session, access.team_id, texts)
    )


@router.get("/teams/{team}/audit/export", response_class=StreamingResponse)
def export_audit(access: Owner, database: CurrentDatabase) -> StreamingResponse:
    """All entries of the team, oldest first, as JSON lines. For owners."""
    return _as_file(audit.export_lines(database, access.team_id), f"audit-{access.team_slug}.jsonl")


@router.get("/audit")
def list_site_audit(
    admin: SiteManager, session: ReadSession, search: Searched, limit: Limit = 100, cursor: Cursor = None
) -> Page[AuditEntry]:
    """Changes outside of teams: accounts, keys, sign-ins and failed ones, nodes, new and deleted teams, newest first. For site admins."""
    page = audit.list_entries(session, audit.NO_TEAM, search, limit, cursor)
    return _described(session, audit.NO_TEAM, page, lambda texts: names_of_site(session, texts))


@router.get("/audit/export", response_class=StreamingResponse)
def export_site_audit(admin: SiteManager, database: CurrentDatabase) -> StreamingResponse:
    """All entries outside of teams, oldest first, as JSON lines. For site admins."""
    return _as_file(audit.export_lines(database, audit.NO_TEAM), "audit.jsonl")


def _described(
    session: Read,
    chain: UUID,
    page: Page[AuditEntry],
    find_names: Callable[[Iterable[str]], dict[str, str]],
) -> Page[AuditEntry]:
    """The page with the names of what its entries are about, and with their sentences."""
    texts = {entry.sequence: f"{entry.path} {entry.details}" for entry in page.items}
    names = find_names(texts.values())
    deleted: dict[str, str] = {}
    if ids_in(texts.values()) - names.keys():
        deleted = recorded_names(audit.list_deletions(session, chain, after=min(texts) - 1))
    keys = names_of_keys(session, {(entry.via, entry.user) for entry in page.items})
    items = [
        entry.model_copy(
            update={
                "names": {id: names[id] for id in names if id in texts[entry.sequence]},
                "key_name": keys.get((entry.via, entry.user)),
                "sentence": sentence_of(entry, names | deleted),
            }
        )
        for entry in page.items
    ]
    return page.model_copy(update={"items": items})


def _as_file(lines: Iterator[str], name: str) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)
