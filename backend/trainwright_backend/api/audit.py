"""The audit logs of a team and of the installation."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from trainwright.contracts.api.audit import AuditEntry
from trainwright.contracts.api.envelopes import Page
from trainwright_backend.api.dependencies import CurrentDatabase, ReadSession
from trainwright_backend.auth import audit
from trainwright_backend.auth.policies import Owner, SiteAdmin
from trainwright_backend.core.policy import GuardedRoute

router = APIRouter(tags=["audit"], route_class=GuardedRoute)

Words = Annotated[
    str, Query(max_length=200, description="Words that the name, action, path, address or details contain.")
]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Cursor = Annotated[str | None, Query(max_length=200)]


@router.get("/teams/{team}/audit")
def list_audit(
    access: Owner, session: ReadSession, q: Words = "", limit: Limit = 100, cursor: Cursor = None
) -> Page[AuditEntry]:
    """Who changed what in the team, newest first. For owners."""
    return audit.list_entries(session, access.team_id, q, limit, cursor)


@router.get("/teams/{team}/audit/export", response_class=StreamingResponse)
def export_audit(access: Owner, database: CurrentDatabase) -> StreamingResponse:
    """All entries of the team, oldest first, as JSON lines. For owners."""
    return _as_file(audit.export_lines(database, access.team_id), f"audit-{access.team_slug}.jsonl")


@router.get("/audit")
def list_site_audit(
    admin: SiteAdmin, session: ReadSession, q: Words = "", limit: Limit = 100, cursor: Cursor = None
) -> Page[AuditEntry]:
    """Changes outside of teams: accounts, keys, sign-ins and failed ones, nodes and new teams, newest first. For site admins."""
    return audit.list_entries(session, audit.NO_TEAM, q, limit, cursor)


def _as_file(lines: Iterator[str], name: str) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)
