"""Pausing runs whose next checkpoint would not fit the total storage of their team."""

from uuid import UUID

from trainwright.contracts.end_codes import EndCode
from trainwright_backend.checkpoints.total_storage import measure_storage
from trainwright_backend.core.db import Write
from trainwright_backend.runs.limit_pause import pause_for
from trainwright_backend.runs.transitions import lock_run
from trainwright_backend.teams.storage_quota import lock_storage


def pause_without_space(session: Write, run_id: UUID) -> None:
    """Pause a run if the storage of its team has no space for its next checkpoint."""
    run = lock_run(session, run_id)
    if run is None:
        return
    lock_storage(session, run.team_id)
    storage = measure_storage(session, {run.team_id})[run.team_id]
    if run.id in storage.runs_without_space():
        pause_for(session, run, EndCode.QUOTA_STORAGE, f"it {storage.too_little(storage.reserves[run.id])}")
