"""Pausing runs whose next checkpoint would not fit the total storage of their team."""

from uuid import UUID

from trainwright.contracts.end_codes import EndCode
from trainwright_backend.checkpoints.total_storage import runs_without_space, storage_sentence
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
    if run.id in runs_without_space(session, run.team_id):
        pause_for(session, run, EndCode.QUOTA_STORAGE, storage_sentence(session, run))
