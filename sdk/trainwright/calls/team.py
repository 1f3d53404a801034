"""Base class of the calls of a team: connection, address, and paged lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.contracts.api.envelopes import Page
from trainwright.transport.connection import Connection, Model


class TeamCalls:
    """Calls to the routes of one team."""

    _client: Connection
    _path: str

    def _pages(self, path: str, item: type[Model], params: Mapping[str, Any] | None = None) -> list[Model]:
        found: list[Model] = []
        cursor: str | None = None
        while True:
            query = dict(params or {}) | ({"cursor": cursor} if cursor else {})
            page = self._client.get(path, Page[item], query)  # type: ignore[valid-type]
            found += page.items
            cursor = page.next_cursor
            if cursor is None:
                return found
