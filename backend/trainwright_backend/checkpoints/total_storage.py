"""What a team, or a member of it, stores, and the space that is reserved for the checkpoints of their runs.

A member stores the checkpoints and exports of the runs that they submitted, the files that they were the first to upload, and what was
prepared from these files and for their datasets.

A run on nodes reserves space for its next checkpoint, and for one more while it has fewer checkpoints than it keeps: until then
each save adds one, and the run must be able to save once more when it is paused. A run is placed, and an upload accepted, only if
it leaves the reserved space of all runs free. If the rest of the storage grows nevertheless, the newest runs are paused until the
space is enough for the others. So checkpoints stay within the limit, and no run loses its state.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import Select, func, select

from trainwright.contracts.api.limits import MemberLimits, TeamLimits, TotalStorage
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.planner.checkpoints import state_bytes
from trainwright.sizes import format_bytes
from trainwright_backend.checkpoints.retention import MIN_KEPT
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import AppError
from trainwright_backend.datasets.tables import Dataset, DatasetVersion, FileChunk, ParsedFile, Preparation
from trainwright_backend.runs.limit_usage import Owner
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Placement, PlacementSlot, Run
from trainwright_backend.teams.limits import all_member_limits, all_team_limits
from trainwright_backend.teams.storage_quota import all_storage_use, lock_storage
from trainwright_backend.uploads.tables import StoredFile, Upload


@dataclass
class Storage:
    """What a team or a member stores in one snapshot, and the space that their runs reserve."""

    limit_bytes: int | None
    uploads_bytes: int
    prepared_bytes: int
    checkpoint_bytes: int
    reserves: dict[UUID, int]
    """Bytes reserved for each run on nodes, oldest first."""

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

    def too_little(self, needed: int, whose: str) -> str:
        """What a run waits for whose checkpoints do not fit. ``whose``: `your team`, or a name."""
        return f"needs {format_bytes(needed)} for its next checkpoints; {whose} stores {self.described()}"

    def described(self) -> str:
        """`9.5 GiB of 10 GiB, and 1 GiB is reserved for the next checkpoints of runs`."""
        text = f"{format_bytes(self.used_bytes)} of {format_bytes(self.limit_bytes or 0)}"
        reserved = format_bytes(self.reserved_bytes)
        return (
            f"{text}, and {reserved} is reserved for the next checkpoints of runs" if self.reserves else text
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

    def shown(self) -> TotalStorage:
        """For people."""
        return TotalStorage(
            limit_bytes=self.limit_bytes,
            uploads_bytes=self.uploads_bytes,
            prepared_bytes=self.prepared_bytes,
            checkpoint_bytes=self.checkpoint_bytes,
            reserved_bytes=self.reserved_bytes,
        )


@dataclass(frozen=True)
class MeasuredStorage:
    """What teams and their members store, in one snapshot."""

    owners: Mapping[Owner, Storage]
    """All of the teams, and the members who store something or have a limit."""

    @classmethod
    def measure(cls, session: Read, team_ids: Collection[UUID]) -> Self:
        """Measure some teams. The number of statements depends neither on the teams nor on their runs."""
        if not team_ids:
            return cls({})
        limits = _limits(session, team_ids)
        uploads, checkpoints = _uploads_bytes(session, team_ids), _checkpoint_bytes(session, team_ids)
        prepared, reserves = _prepared_bytes(session, team_ids), _reserves(session, team_ids)
        owners = {*((team_id, None) for team_id in team_ids), *limits, *uploads, *checkpoints, *prepared}
        return cls(
            {
                owner: Storage(
                    limit_bytes=limits.get(owner),
                    uploads_bytes=uploads[owner],
                    prepared_bytes=prepared[owner],
                    checkpoint_bytes=checkpoints[owner],
                    reserves=reserves.get(owner, {}),
                )
                for owner in owners | reserves.keys()
            }
        )

    def of(self, team_id: UUID, user_id: UUID | None = None) -> Storage:
        """What a team, or a member, stores."""
        return self.owners.get((team_id, user_id)) or Storage(None, 0, 0, 0, {})

    def of_run(self, run: Run) -> Iterator[tuple[Storage, str]]:
        """The storage in which a run needs space, and whose it is: `your team`, or a name."""
        yield self.of(run.team_id), "your team"
        if run.created_by is not None:
            yield self.of(run.team_id, run.created_by), run.created_by_name or "the submitter"

    def why_no_space(self, run: Run, needed: int) -> str | None:
        """Why a run that is not on nodes has no space for its checkpoints; None if it has."""
        reasons = (
            None if storage.fits(needed) else storage.too_little(needed, whose)
            for storage, whose in self.of_run(run)
        )
        return next((reason for reason in reasons if reason is not None), None)

    def runs_without_space(self) -> list[UUID]:
        """The runs on nodes to pause."""
        return sorted({run for storage in self.owners.values() for run in storage.runs_without_space()})


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
        spec = stored_spec(run)
    except ValidationError:  # of an older version, whose rules differed
        return 2 * largest
    size = largest if count else state_bytes(spec)
    return size if count >= max(spec.checkpoint.keep, MIN_KEPT) else 2 * size


def check_space(session: Read, run: Run) -> None:
    """Refuse to resume a run if there is no space for its checkpoints.

    Raises:
        AppError: 403 ``storage_exceeded``.
    """
    if not has_storage_limits(session, run.team_id):
        return
    storage = MeasuredStorage.measure(session, {run.team_id})
    why = storage.why_no_space(run, checkpoint_reserves(session, [run])[run.id])
    if why is not None:
        remedy = "Delete what nobody needs, or ask for a higher limit."
        raise AppError("storage_exceeded", 403, f"The run stays paused: it {why}. {remedy}")


def check_upload(session: Write, team_id: UUID, user_id: UUID, announced_bytes: int) -> None:
    """Refuse a file that does not fit the total storage of the team or of the person who uploads it.

    Raises:
        AppError: 403 ``storage_exceeded``.
    """
    if not has_storage_limits(session, team_id):
        return
    lock_storage(session, team_id)
    measured = MeasuredStorage.measure(session, {team_id})
    for storage, whose, whom in (
        (measured.of(team_id), "your team stores", "a site admin"),
        (measured.of(team_id, user_id), "you store", "an owner of the team"),
    ):
        if not storage.fits(announced_bytes):
            detail = (
                f"This file has {format_bytes(announced_bytes)}; {whose} {storage.described()}. Delete data or "
                f"checkpoints that nobody needs, or ask {whom} to raise the limit."
            )
            raise AppError("storage_exceeded", 403, detail)


def has_storage_limits(session: Read, team_id: UUID) -> bool:
    """Whether the total storage of the team, or of one of its members, is limited."""
    return bool(_limits(session, {team_id}))


def _limits(session: Read, team_ids: Collection[UUID]) -> dict[Owner, int]:
    teams, members = all_team_limits(session, team_ids), all_member_limits(session, team_ids)
    limits: dict[Owner, TeamLimits | MemberLimits] = {(team_id, None): own for team_id, own in teams.items()}
    limits |= {(team_id, user): own for team_id, team in members.items() for user, own in team.items()}
    return {owner: own.storage_bytes for owner, own in limits.items() if own.storage_bytes is not None}


def _reserves(session: Read, team_ids: Collection[UUID]) -> dict[Owner, dict[UUID, int]]:
    """The space that the runs on nodes reserve, oldest first."""
    placed = select(Placement.run_id).join(PlacementSlot, PlacementSlot.placement_id == Placement.id)
    theirs = select(Run).where(Run.team_id.in_(team_ids), Run.id.in_(placed)).order_by(Run.id)
    runs = session.scalars(theirs).all()
    found: dict[Owner, dict[UUID, int]] = {}
    for run_id, needed in checkpoint_reserves(session, runs).items():
        run = session.get_one(Run, run_id)
        for user_id in {None, run.created_by}:
            found.setdefault((run.team_id, user_id), {})[run_id] = needed
    return found


def _uploads_bytes(session: Read, team_ids: Collection[UUID]) -> Counter[Owner]:
    """Those of teams are kept in their rows; those of members are added up."""
    found: Counter[Owner] = Counter(
        {(team_id, None): use.used_bytes for team_id, use in all_storage_use(session, team_ids).items()}
    )
    files = (
        select(StoredFile.team_id, StoredFile.created_by, func.sum(StoredFile.bytes))
        .where(StoredFile.team_id.in_(team_ids))
        .group_by(StoredFile.team_id, StoredFile.created_by)
    )
    unfinished = (
        select(Upload.team_id, Upload.created_by, func.sum(Upload.bytes))
        .where(Upload.team_id.in_(team_ids), Upload.stored_file_id.is_(None))
        .group_by(Upload.team_id, Upload.created_by)
    )
    for (team_id, user_id), total in (_totals(session, files) + _totals(session, unfinished)).items():
        if user_id is not None:
            found[team_id, user_id] = total
    return found


def _prepared_bytes(session: Read, team_ids: Collection[UUID]) -> Counter[Owner]:
    chunks = (
        select(ParsedFile.team_id, StoredFile.created_by, func.sum(FileChunk.bytes))
        .join(ParsedFile, ParsedFile.id == FileChunk.parsed_file_id)
        .join(StoredFile, StoredFile.id == ParsedFile.stored_file_id)
        .where(ParsedFile.team_id.in_(team_ids))
        .group_by(ParsedFile.team_id, StoredFile.created_by)
    )
    shards = (
        select(Preparation.team_id, Dataset.created_by, func.sum(Preparation.stored_bytes))
        .join(DatasetVersion, DatasetVersion.id == Preparation.version_id)
        .join(Dataset, Dataset.id == DatasetVersion.dataset_id)
        .where(Preparation.team_id.in_(team_ids))
        .group_by(Preparation.team_id, Dataset.created_by)
    )
    return _totals(session, chunks) + _totals(session, shards)


def _checkpoint_bytes(session: Read, team_ids: Collection[UUID]) -> Counter[Owner]:
    return _totals(
        session,
        select(Run.team_id, Run.created_by, func.sum(Checkpoint.bytes))
        .join(Checkpoint, Checkpoint.run_id == Run.id)
        .where(Run.team_id.in_(team_ids))
        .group_by(Run.team_id, Run.created_by),
    )


def _totals(session: Read, by_member: Select[UUID, UUID | None, int | None]) -> Counter[Owner]:
    """The totals of teams and of their members."""
    found: Counter[Owner] = Counter()
    for team_id, user_id, total in session.execute(by_member):
        for owner in {None, user_id}:
            found[team_id, owner] += int(total or 0)
    return found
