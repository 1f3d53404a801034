"""Locks of a team's row. A transaction takes them before those of other rows of the team, except that a run is locked before.

A transaction that adds or changes something in a team holds the team, one that counts its runs or members locks it, and one that
deletes it waits for all of these.
"""

from uuid import UUID

from sqlalchemy import Select, select

from trainwright_backend.auth.tables import Team
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import NotFound


def hold_team(session: Write, team_id: UUID) -> None:
    """Let nobody delete the team until this transaction ends. Others can hold it too.

    Raises:
        NotFound: it is deleted already.
    """
    _lock(session, select(Team.id).where(Team.id == team_id).with_for_update(read=True, key_share=True))


def lock_team(session: Write, team_id: UUID) -> None:
    """Let nobody else count the team's runs or change its members until this transaction ends.

    Raises:
        NotFound: it is deleted.
    """
    _lock(session, select(Team.id).where(Team.id == team_id).with_for_update(key_share=True))


def lock_to_delete(session: Write, team_id: UUID) -> None:
    """Wait for all transactions that hold or lock the team, and keep new ones out. A transaction that holds the team must not call
    this: two of them would wait for each other.

    Raises:
        NotFound: it is deleted already.
    """
    _lock(session, select(Team.id).where(Team.id == team_id).with_for_update())


def _lock(session: Write, row: Select[UUID]) -> None:
    if session.scalar(row) is None:
        raise NotFound("This team was deleted.")
