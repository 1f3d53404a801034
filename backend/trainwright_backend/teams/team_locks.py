"""Locks of a team's row. A transaction takes them before those of other rows of the team, except that a run is locked before.

A transaction that adds or changes something in a team holds the team, one that counts its runs or members locks it, and one that
deletes it waits for all of these.
"""

from uuid import UUID

from sqlalchemy import Connection, Select, event, select

from trainwright_backend.auth.tables import Team
from trainwright_backend.core.db import Write
from trainwright_backend.core.errors import NotFound


def hold_team(session: Write, team_id: UUID) -> None:
    """Let nobody delete the team until this transaction ends. Others can hold it too.

    Raises:
        NotFound: it is deleted already.
    """
    _check(session.scalar(_held(team_id)))


def hold_team_from_begin(session: Write, team_id: UUID) -> None:
    """As `hold_team`, when the transaction begins, which is at its first statement.

    A route's transaction must not begin before its function runs. On SQLite, it would have the write lock while the request
    waits for a thread, and the threads would wait for the lock.

    Raises:
        NotFound: at the first statement, if the team is deleted already.
    """

    @event.listens_for(session, "after_begin", once=True)
    def hold(_session: Write, _transaction: object, connection: Connection) -> None:
        _check(connection.scalar(_held(team_id)))


def lock_team(session: Write, team_id: UUID) -> None:
    """Let nobody else count the team's runs or change its members until this transaction ends.

    Raises:
        NotFound: it is deleted.
    """
    _check(session.scalar(select(Team.id).where(Team.id == team_id).with_for_update(key_share=True)))


def lock_to_delete(session: Write, team_id: UUID) -> None:
    """Wait for all transactions that hold or lock the team, and keep new ones out. A transaction that holds the team must not call
    this: two of them would wait for each other.

    Raises:
        NotFound: it is deleted already.
    """
    _check(session.scalar(select(Team.id).where(Team.id == team_id).with_for_update()))


def _held(team_id: UUID) -> Select[UUID]:
    return select(Team.id).where(Team.id == team_id).with_for_update(read=True, key_share=True)


def _check(locked: UUID | None) -> None:
    if locked is None:
        raise NotFound("This team was deleted.")
