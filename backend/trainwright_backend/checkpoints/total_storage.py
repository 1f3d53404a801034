"""Everything that a team stores, and the space that is reserved for the checkpoints of its runs.

A run on nodes reserves space for its next checkpoint, and for one more while it has fewer checkpoints than it keeps: until then
each save adds one, and the run must be able to save once more when it is paused. A run is placed, and an upload accepted, only if
it leaves the reserved space of all runs free. If the rest of the storage grows nevertheless, the newest runs are paused until the
space is enough for the others. So checkpoints stay within the limit, and no run loses its state.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Select, func, select

from trainwright.contracts.api.limits import TeamLimits, TotalStorage
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.checkpoints import state_bytes
from trainwright_backend.checkpoints.retention import LEAST_KEPT
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.datasets.tables import FileChunk, ParsedFile, Preparation
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.teams.limits import all_team_limits, team_limits
from trainwright_backend.teams.storage_quota import all_storage_use, format_bytes, lock_storage


@dataclass
class TeamStorage:
    """What a team stores in one snapshot, and the space that its runs reserve."""

    limit_bytes: int | None
    uploads_bytes: int
    prepared_bytes: int
    checkpoint_bytes: int
    reserves: dict[UUID, int]
    """Of each run on nodes, oldest first, in bytes."""

    @property
    def used_bytes(self) -> int:
        """What is stored, without what is reserved."""
        return self.uploads_bytes + self.prepared_bytes + self.checkpoint_bytes

    @property
    def reserved_bytes(self) -> int:
        """The space that all runs on nodes reserve."""
        return sum(self.reserves.values())

    def fits(self, more_bytes: int) -> bool:
        """Whether the limit leaves that much free."""
        return (
            self.limit_bytes is None or self.used_bytes + self.reserved_bytes + more_bytes <= self.limit_bytes
        )

    def why_no_space(self, needed: int) -> str | None:
        """Why a run that is not on nodes has no space for its checkpoints; None if it has."""
        return None if self.fits(needed) else self.too_little(needed)

    def too_little(self, needed: int) -> str:
        """What a run waits for whose checkpoints do not fit."""
        return f"needs {format_bytes(needed)} for its next checkpoints; your team stores {self.described()}"

    def described(self) -> str:
        """`9.5 GiB of 10 GiB, and 1 GiB is reserved for the next checkpoints of its runs`."""
        text = f"{format_bytes(self.used_bytes)} of {format_bytes(self.limit_bytes or 0)}"
        reserved = format_bytes(self.reserved_bytes)
        return (
            f"{text}, and {reserved} is reserved for the next checkpoints of its runs"
            if self.reserves
            else text
        )

    def runs_without_space(self) -> list[UUID]:
        """The runs on nodes to pause: the newest, so that the space is enough for the others."""
        if self.limit_bytes is None:
            return []
        free = self.limit_bytes - self.used_bytes
        without = []
        for run_id, needed in self.reserves.items():
            if needed > free:
                without.append(run_id)
            else:
                free -= needed
        return without


def measure_storage(session: Read, team_ids: Collection[UUID]) -> dict[UUID, TeamStorage]:
    """What some teams store. The number of statements depends neither on the teams nor on their runs."""
    limits, uploads = all_team_limits(session, team_ids), all_storage_use(session, team_ids)
    prepared, checkpoints = _prepared_bytes(session, team_ids), _checkpoint_bytes(session, team_ids)
    on_nodes = _on_nodes(session, team_ids)
    reserves = checkpoint_reserves(session, on_nodes)
    return {
        team_id: TeamStorage(
            limit_bytes=limits.get(team_id, TeamLimits()).storage_bytes,
            uploads_bytes=uploads[team_id].used_bytes,
            prepared_bytes=prepared.get(team_id, 0),
            checkpoint_bytes=checkpoints.get(team_id, 0),
            reserves={run.id: reserves[run.id] for run in on_nodes if run.team_id == team_id},
        )
        for team_id in team_ids
    }


def total_storage(session: Read, team_id: UUID) -> TotalStorage:
    """What a team stores, for people."""
    storage = measure_storage(session, {team_id})[team_id]
    return TotalStorage(
        limit_bytes=storage.limit_bytes,
        uploads_bytes=storage.uploads_bytes,
        prepared_bytes=storage.prepared_bytes,
        checkpoint_bytes=storage.checkpoint_bytes,
        reserved_bytes=storage.reserved_bytes,
    )


def checkpoint_reserves(session: Read, runs: Sequence[Run]) -> dict[UUID, int]:
    """The space that each run reserves, or would reserve, while it is on nodes."""
    complete = (
        select(Checkpoint.run_id, func.count(), func.max(Checkpoint.bytes))
        .where(
            Checkpoint.run_id.in_([run.id for run in runs]),
            Checkpoint.kind == CheckpointKind.STATE,
            Checkpoint.committed.is_not(None),
            Checkpoint.valid,
        )
        .group_by(Checkpoint.run_id)
    )
    found = {run_id: (count, largest) for run_id, count, largest in session.execute(complete)} if runs else {}
    return {run.id: _checkpoint_reserve(run, *found.get(run.id, (0, 0))) for run in runs}


def _checkpoint_reserve(run: Run, count: int, largest: int) -> int:
    """The space that a run reserves.

    Args:
        count: its complete checkpoints.
        largest: bytes of the largest of them.
    """
    try:
        spec = RunSpec.model_validate(run.spec)
    except ValidationError:  # of an older version, whose rules differed
        return 2 * largest
    size = largest if count else state_bytes(spec)
    return size if count >= max(spec.checkpoint.keep, LEAST_KEPT) else 2 * size


def check_space(session: Read, run: Run) -> None:
    """Refuse to resume a run if there is no space for its checkpoints.

    Raises:
        AppError: 403 ``storage_exceeded``.
    """
    if team_limits(session, run.team_id).storage_bytes is None:
        return
    storage = measure_storage(session, {run.team_id})[run.team_id]
    why = storage.why_no_space(checkpoint_reserves(session, [run])[run.id])
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
    storage = measure_storage(session, {team_id})[team_id]
    if not storage.fits(announced_bytes):
        detail = (
            f"This file has {format_bytes(announced_bytes)}; your team stores {storage.described()}. Delete data or "
            "checkpoints that nobody needs, or ask a site admin to raise the limit."
        )
        raise AppError("storage_exceeded", 403, detail)


def _on_nodes(session: Read, team_ids: Collection[UUID]) -> Sequence[Run]:
    """The runs that hold slots, oldest first."""
    placed = select(Placement.run_id).join(PlacementSlot, PlacementSlot.placement_id == Placement.id)
    theirs = select(Run).where(Run.team_id.in_(team_ids), Run.id.in_(placed)).order_by(Run.id)
    return session.scalars(theirs).all()


def _prepared_bytes(session: Read, team_ids: Collection[UUID]) -> Counter[UUID]:
    chunks = (
        select(ParsedFile.team_id, func.sum(FileChunk.bytes))
        .join(ParsedFile, ParsedFile.id == FileChunk.parsed_file_id)
        .where(ParsedFile.team_id.in_(team_ids))
        .group_by(ParsedFile.team_id)
    )
    shards = (
        select(Preparation.team_id, func.sum(Preparation.stored_bytes))
        .where(Preparation.team_id.in_(team_ids))
        .group_by(Preparation.team_id)
    )
    return _totals(session, chunks) + _totals(session, shards)


def _checkpoint_bytes(session: Read, team_ids: Collection[UUID]) -> Counter[UUID]:
    return _totals(
        session,
        select(Run.team_id, func.sum(Checkpoint.bytes))
        .join(Checkpoint, Checkpoint.run_id == Run.id)
        .where(Run.team_id.in_(team_ids))
        .group_by(Run.team_id),
    )


def _totals(session: Read, by_team: Select[UUID, int | None]) -> Counter[UUID]:
    return Counter({team_id: int(total or 0) for team_id, total in session.execute(by_team)})
