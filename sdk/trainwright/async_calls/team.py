"""Base class of the calls of a team: connection and address."""

from __future__ import annotations

from trainwright.transport.async_connection import AsyncConnection


class AsyncTeamCalls:
    """Calls to the routes of one team."""

    _client: AsyncConnection
    _path: str
