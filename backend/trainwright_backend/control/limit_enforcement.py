"""Enforcing limits of hours and storage on runs that are on nodes. Placement enforces them on waiting runs."""

from collections.abc import Callable
from uuid import UUID

from trainwright_backend.checkpoints.limit_report import note_levels
from trainwright_backend.checkpoints.storage_pause import pause_without_space
from trainwright_backend.checkpoints.total_storage import runs_without_space
from trainwright_backend.control.steps import run_step
from trainwright_backend.core.db import Database, Write
from trainwright_backend.runs.limit_pause import pause_out_of_hours, runs_of_teams_on_nodes
from trainwright_backend.teams.limits import all_member_limits, all_team_limits


def enforce_limits(database: Database) -> None:
    """Store due notices, and pause the runs whose hours are used up or whose next checkpoint would not fit.

    A run pauses in a transaction of its own, which measures again.
    """
    with database.read() as session:
        limits = all_team_limits(session)
        limited = limits.keys() | all_member_limits(session).keys()
        if not limited:
            return
        on_nodes = session.scalars(runs_of_teams_on_nodes(limited)).all()
        stored = [team_id for team_id, limit in limits.items() if limit.storage_bytes is not None]
        without_space = [run_id for team_id in stored for run_id in runs_without_space(session, team_id)]
    for team_id in limited:
        _step(database, note_levels, team_id)
    for run_id in on_nodes:
        _step(database, pause_out_of_hours, run_id)
    for run_id in without_space:
        _step(database, pause_without_space, run_id)


def _step(database: Database, work: Callable[[Write, UUID], object], row_id: UUID) -> None:
    def step() -> None:
        with database.write() as session:
            work(session, row_id)

    run_step(step, id=str(row_id))
