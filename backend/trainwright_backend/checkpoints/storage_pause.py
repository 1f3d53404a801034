"""Pausing runs whose next checkpoint would not fit the total storage of their team or submitter."""

from uuid import UUID

from trainwright.contracts.end_codes import EndCode
from trainwright_backend.checkpoints.total_storage import MeasuredStorage
from trainwright_backend.core.db import Write
from trainwright_backend.runs.limit_pause import pause_for
from trainwright_backend.runs.transitions import lock_run
from trainwright_backend.teams.storage_quota import lock_storage


def pause_without_space(session: Write, run_id: UUID) -> None:
    """Pause a run if the storage of its team, or of its submitter, has no space for its next checkpoint."""
    run = lock_run(session, run_id)
    if run is None:
        return
    lock_storage(session, run.team_id)
    for storage, whose in MeasuredStorage.measure(session, {run.team_id}).of_run(run):
        if run.id in storage.runs_without_space():
            why = f"it {storage.too_little(storage.reserves[run.id], whose)}"
            return pause_for(session, run, EndCode.QUOTA_STORAGE, why)
