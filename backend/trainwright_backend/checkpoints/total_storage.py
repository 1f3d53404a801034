"""Everything that a team stores, and the space that is reserved for the checkpoints of its runs.

A run on nodes reserves space for its next checkpoint, and for one more while it has fewer checkpoints than it keeps: until then
each save adds one, and the run must be able to save once more when it is paused. A run is placed, and an upload accepted, only if
it leaves the reserved space of all runs free. If the rest of the storage grows nevertheless, the newest runs are paused until the
space is enough for the others. So checkpoints stay within the limit, and no run loses its state.
"""

from collections.abc import Sequence
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import func, select

from trainwright.contracts.api.limits import TotalStorage
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.checkpoints import state_bytes
from trainwright_backend.checkpoints.retention import LEAST_KEPT
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.datasets.tables import FileChunk, ParsedFile, Preparation
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.teams.limits import team_limits
from trainwright_backend.teams.storage_quota import format_bytes, lock_storage, storage_use


def total_storage(session: Read, team_id: UUID) -> TotalStorage:
    """What a team stores, and the space that its runs reserve."""
    return TotalStorage(
        limit_bytes=team_limits(session, team_id).storage_bytes,
        uploads_bytes=storage_use(session, team_id).used_bytes,
        prepared_bytes=_prepared_bytes(session, team_id),
        checkpoint_bytes=_checkpoint_bytes(session, team_id),
        reserved_bytes=sum(checkpoint_reserve(session, run) for run in _on_nodes(session, team_id)),
    )


def checkpoint_reserve(session: Read, run: Run) -> int:
    """The space that a run reserves, or would reserve, while it is on nodes."""
    states = session.scalars(
        select(Checkpoint.bytes)
        .where(
            Checkpoint.run_id == run.id,
            Checkpoint.kind == CheckpointKind.STATE,
            Checkpoint.committed.is_not(None),
            Checkpoint.valid,
        )
        .order_by(Checkpoint.step.desc())
    ).all()
    try:
        spec = RunSpec.model_validate(run.spec)
    except ValidationError:  # of an older version, whose rules differed
        return 2 * max(states, default=0)
    size = max(states) if states else state_bytes(spec)
    return size if len(states) >= max(spec.checkpoint.keep, LEAST_KEPT) else 2 * size


def why_no_space(session: Read, run: Run) -> str | None:
    """Why there is no space for the checkpoints of a run that is not on nodes; None if there is."""
    if team_limits(session, run.team_id).storage_bytes is None:
        return None
    storage = total_storage(session, run.team_id)
    assert storage.limit_bytes is not None
    needed = checkpoint_reserve(session, run)
    free = storage.limit_bytes - storage.used_bytes - storage.reserved_bytes
    return None if needed <= free else _too_little(storage, needed)


def check_space(session: Read, run: Run) -> None:
    """Refuse to resume a run if there is no space for its checkpoints.

    Raises:
        AppError: 403 ``storage_exceeded``.
    """
    why = why_no_space(session, run)
    if why is not None:
        remedy = "Delete what nobody needs, or ask a site admin to raise the limit."
        raise AppError("storage_exceeded", 403, f"The run stays paused: it {why}. {remedy}")


def check_upload(session: Write, team_id: UUID, announced_bytes: int) -> None:
    """Refuse a file that does not fit the team's total storage.

    Raises:
        AppError: 403 ``storage_exceeded``.
    """
    if team_limits(session, team_id).storage_bytes is None:
        return
    lock_storage(session, team_id)
    storage = total_storage(session, team_id)
    assert storage.limit_bytes is not None
    if storage.used_bytes + storage.reserved_bytes + announced_bytes > storage.limit_bytes:
        detail = (
            f"This file has {format_bytes(announced_bytes)}; your team stores {_described(storage)}. Delete data or "
            "checkpoints that nobody needs, or ask a site admin to raise the limit."
        )
        raise AppError("storage_exceeded", 403, detail)


def runs_without_space(session: Read, team_id: UUID) -> list[UUID]:
    """The runs on nodes to pause: the newest, so that the space is enough for the others."""
    limit_bytes = team_limits(session, team_id).storage_bytes
    if limit_bytes is None:
        return []
    storage = total_storage(session, team_id)
    free = limit_bytes - storage.used_bytes
    without = []
    for run in _on_nodes(session, team_id):
        needed = checkpoint_reserve(session, run)
        if needed > free:
            without.append(run.id)
        else:
            free -= needed
    return without


def storage_sentence(session: Read, run: Run) -> str:
    """What a run waits for that is paused because there is no space for its checkpoints."""
    return f"it {_too_little(total_storage(session, run.team_id), checkpoint_reserve(session, run))}"


def _too_little(storage: TotalStorage, needed: int) -> str:
    return f"needs {format_bytes(needed)} for its next checkpoints; your team stores {_described(storage)}"


def _described(storage: TotalStorage) -> str:
    """`9.5 GiB of 10 GiB, and 1 GiB is reserved for the next checkpoints of its runs`."""
    text = f"{format_bytes(storage.used_bytes)} of {format_bytes(storage.limit_bytes or 0)}"
    reserved = storage.reserved_bytes
    return (
        f"{text}, and {format_bytes(reserved)} is reserved for the next checkpoints of its runs"
        if reserved
        else text
    )


def _on_nodes(session: Read, team_id: UUID) -> Sequence[Run]:
    """The runs that hold slots, oldest first."""
    placed = select(Placement.run_id).join(PlacementSlot, PlacementSlot.placement_id == Placement.id)
    mine = select(Run).where(Run.team_id == team_id, Run.id.in_(placed)).order_by(Run.id)
    return session.scalars(mine).all()


def _prepared_bytes(session: Read, team_id: UUID) -> int:
    chunks = (
        select(func.sum(FileChunk.bytes))
        .join(ParsedFile, ParsedFile.id == FileChunk.parsed_file_id)
        .where(ParsedFile.team_id == team_id)
    )
    shards = select(func.sum(Preparation.stored_bytes)).where(Preparation.team_id == team_id)
    return int(session.scalar(chunks) or 0) + int(session.scalar(shards) or 0)


def _checkpoint_bytes(session: Read, team_id: UUID) -> int:
    total = select(func.sum(Checkpoint.bytes)).join(Run, Run.id == Checkpoint.run_id)
    return int(session.scalar(total.where(Run.team_id == team_id)) or 0)
