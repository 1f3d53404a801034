"""Everything that a team stores, and the room that is kept for the checkpoints of its runs.

A run on nodes keeps room for its next checkpoint, and for one more while it has fewer checkpoints than it keeps: each save adds
one then, and the run must be able to save once more when it is paused. A run is placed, and an upload accepted, only if the room
of all runs remains. If the rest of the storage grows nevertheless, the newest runs are paused until the room of the others is
enough. So checkpoints stay within the limit, and no run loses its state.
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
    """What a team stores, and the room that its runs keep."""
    return TotalStorage(
        limit_bytes=team_limits(session, team_id).storage_bytes,
        uploads_bytes=storage_use(session, team_id).used_bytes,
        prepared_bytes=_prepared_bytes(session, team_id),
        checkpoint_bytes=_checkpoint_bytes(session, team_id),
        reserved_bytes=sum(room_of(session, run) for run in _on_nodes(session, team_id)),
    )


def room_of(session: Read, run: Run) -> int:
    """The room that a run keeps, or would keep, on nodes."""
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


def why_no_room(session: Read, run: Run) -> str | None:
    """Why a run that is not on nodes has no room for its checkpoints; None if it has."""
    if team_limits(session, run.team_id).storage_bytes is None:
        return None
    storage = total_storage(session, run.team_id)
    assert storage.limit_bytes is not None
    room = room_of(session, run)
    free = storage.limit_bytes - storage.used_bytes - storage.reserved_bytes
    return None if room <= free else _too_little(storage, room)


def check_room(session: Read, run: Run) -> None:
    """Refuse to resume a run whose checkpoints have no room.

    Raises:
        AppError: 403 ``storage_exceeded``.
    """
    why = why_no_room(session, run)
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


def runs_without_room(session: Read, team_id: UUID) -> list[UUID]:
    """The runs on nodes to pause: the newest, so that the room of the others is enough."""
    limit_bytes = team_limits(session, team_id).storage_bytes
    if limit_bytes is None:
        return []
    storage = total_storage(session, team_id)
    free = limit_bytes - storage.used_bytes
    without = []
    for run in _on_nodes(session, team_id):
        room = room_of(session, run)
        if room > free:
            without.append(run.id)
        else:
            free -= room
    return without


def storage_sentence(session: Read, run: Run) -> str:
    """What a run that is paused for its room waits for."""
    return f"it {_too_little(total_storage(session, run.team_id), room_of(session, run))}"


def _too_little(storage: TotalStorage, room: int) -> str:
    return f"needs {format_bytes(room)} for its next checkpoints; your team stores {_described(storage)}"


def _described(storage: TotalStorage) -> str:
    """`9.5 GiB of 10 GiB, and runs keep 1 GiB for their next checkpoints`."""
    text = f"{format_bytes(storage.used_bytes)} of {format_bytes(storage.limit_bytes or 0)}"
    kept = storage.reserved_bytes
    return f"{text}, and its runs keep {format_bytes(kept)} for their next checkpoints" if kept else text


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
