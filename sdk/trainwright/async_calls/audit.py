"""Calls about the audit logs of a team and of the installation."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TypedDict, Unpack

from trainwright.async_calls.team import AsyncTeamCalls
from trainwright.contracts.api.audit import AuditEntry
from trainwright.contracts.api.envelopes import Page
from trainwright.transport.async_connection import AsyncConnection


class AuditFilter(TypedDict, total=False):
    """Which entries to read. Those that match all of it are read."""

    actor: str
    """Name or id of who made the change."""

    action: str
    """Name of the operation, such as `submit_run`."""

    since: datetime | None
    """The earliest time, with its time zone."""


class AsyncAuditCalls(AsyncTeamCalls):
    """Who changed what in the team. For owners."""

    async def audit(
        self, words: str = "", limit: int = 100, cursor: str | None = None, **only: Unpack[AuditFilter]
    ) -> Page[AuditEntry]:
        """A page of the entries that match, newest first.

        Args:
            words: each is in the name, `via`, action, path, address or details of the entries.
            limit: entries of a page, at most 1,000.
            cursor: `next_cursor` of the previous page.
            only: `actor`, `action` and `since`.
        """
        return await read_audit(self._client, f"{self._path}/audit", words, limit, cursor, only)

    async def export_audit(self, file: Path) -> Path:
        """Write all entries, oldest first, to a file of JSON lines. It is replaced if it exists."""
        await self._client.save_as(f"{self._path}/audit/export", {}, file)
        return file


async def read_audit(
    connection: AsyncConnection,
    path: str,
    words: str,
    limit: int,
    cursor: str | None,
    only: AuditFilter,
) -> Page[AuditEntry]:
    """A page of an audit log."""
    since = only.get("since")
    given = {
        "q": words,
        "actor": only.get("actor"),
        "action": only.get("action"),
        "since": None if since is None else since.isoformat(),
        "cursor": cursor,
    }
    query = {name: value for name, value in given.items() if value}
    return await connection.get(path, Page[AuditEntry], {"limit": limit} | query)
