"""The checkpoint from which a run's next attempt starts, and resuming a paused run if there is space for its checkpoints."""

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, select

from trainwright.contracts.end_codes import EndCode
from trainwright_backend.checkpoints.compatibility import restarts_data
from trainwright_backend.checkpoints.service import newest_state
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.checkpoints.total_storage import check_space
from trainwright_backend.core.db import Read, Write
from trainwright_backend.runs.pause import resume_run
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Attempt, Run


class Resume(NamedTuple):
    """The checkpoint from which an attempt starts."""

    checkpoint: Checkpoint
    forked: bool
    """The checkpoint is the parent's."""

    data_from_start: bool
    """The checkpoint was trained on other data."""

    sequences_read: int = 0
    """Sequences of the data order to count as read, even if the checkpoint was saved before: an attempt diverged on them."""


def resume_point(session: Read, run: Run) -> Resume | None:
    """The checkpoint for the run's next attempt: its newest state, or the one it was forked from; None for a
    fresh start."""
    own = newest_state(session, run.id)
    if own is not None:
        return Resume(own, False, False, _read_when_diverged(session, run, own.attempt))
    parents = forked_checkpoint(session, run)
    if parents is None:
        return None
    parent = session.get_one(Run, parents.run_id)
    before, spec = stored_spec(parent), stored_spec(run)
    return Resume(parents, True, restarts_data(before, spec), _read_when_diverged(session, run, 0))


def has_lost_resume_point(session: Read, run: Run) -> bool:
    """Whether the run was forked, and neither its own nor its parent's state is left to start from."""
    return run.forked_checkpoint_id is not None and resume_point(session, run) is None


def forked_checkpoint(session: Read, run: Run) -> Checkpoint | None:
    """The checkpoint from which the run was forked; None if it was not, or if the checkpoint is gone or damaged."""
    if run.forked_checkpoint_id is None:
        return None
    found = session.get(Checkpoint, run.forked_checkpoint_id)
    return found if found is not None and found.valid else None


def resume_run_if_space(session: Write, team_id: UUID, run_id: str, by: str) -> Run:
    """As `resume_run`, if the storage of the team has space for the run's next checkpoints.

    Raises:
        AppError: 403 ``storage_exceeded``: it has not; 403 ``quota_exceeded``.
        Conflict: ``run_not_paused``.
    """
    run = resume_run(session, team_id, run_id, by)
    check_space(session, run)
    return run


def _read_when_diverged(session: Read, run: Run, saved: int) -> int:
    """The data position of the attempts that diverged, from the one that saved a checkpoint on; 0 if none did."""
    read = select(func.max(Attempt.sequences_read)).where(
        Attempt.run_id == run.id, Attempt.number >= saved, Attempt.reason == EndCode.DIVERGED
    )
    return session.scalar(read) or 0
