"""Enforcing limits of hours and storage on runs that are on nodes. Placement enforces them on waiting runs."""

from collections.abc import Callable
from uuid import UUID

from trainwright_backend.checkpoints.limit_report import note_levels, teams_with_due_notices
from trainwright_backend.checkpoints.storage_pause import pause_without_space
from trainwright_backend.checkpoints.total_storage import MeasuredStorage
from trainwright_backend.control.run_step import run_step
from trainwright_backend.core.db import Database, Write
from trainwright_backend.runs.limit_pause import pause_out_of_hours, runs_out_of_hours
from trainwright_backend.runs.limit_usage import MeasuredLimits


def enforce_limits(database: Database) -> None:
    """Store due notices, and pause the runs whose hours are used up or whose next checkpoint would not fit.

    One snapshot measures all teams and finds what is due. Only that is written, each in a transaction of its own, which measures
    again.
    """
    with database.read() as session:
        measured = MeasuredLimits.measure(session)
        storage = MeasuredStorage.measure(session, measured.teams_with_storage_limits)
        to_note = teams_with_due_notices(session, measured, storage)
        out_of_hours = runs_out_of_hours(session, measured)
    for team_id in to_note:
        _step(database, note_levels, team_id)
    for run_id in out_of_hours:
        _step(database, pause_out_of_hours, run_id)
    for run_id in storage.runs_without_space():
        _step(database, pause_without_space, run_id)


def _step(database: Database, work: Callable[[Write, UUID], object], row_id: UUID) -> None:
    def step() -> None:
        with database.write() as session:
            work(session, row_id)

    run_step(step, id=str(row_id))
