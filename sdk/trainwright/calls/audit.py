"""Calls about the audit log of a team."""

from __future__ import annotations

from pathlib import Path

from trainwright.calls.team import TeamCalls
from trainwright.contracts.api.audit import AuditEntry
from trainwright.contracts.api.envelopes import Page


class AuditCalls(TeamCalls):
    """Who changed what in the team. For owners."""

    def audit(self, words: str = "", limit: int = 100, cursor: str | None = None) -> Page[AuditEntry]:
        """A page of the entries with all ``words`` in name, action, path, address or details, newest first."""
        query = {"q": words, "limit": limit} | ({"cursor": cursor} if cursor is not None else {})
        return self._client.get(f"{self._path}/audit", Page[AuditEntry], query)

    def export_audit(self, file: Path) -> Path:
        """Write all entries, oldest first, to a file of JSON lines. It is replaced if it exists."""
        self._client.save_as(f"{self._path}/audit/export", {}, file)
        return file
