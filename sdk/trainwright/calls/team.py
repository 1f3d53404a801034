# Generated from async_calls/team.py by infra/sync_client.py. Change that file.
"""Base class of the calls of a team: connection and address."""

from __future__ import annotations

from trainwright.transport.connection import Connection


class TeamCalls:
    """Calls to the routes of one team."""

    _client: Connection
    _path: str
