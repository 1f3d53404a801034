"""What a team has used, and estimates of what a run would use."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime

from trainwright.contracts.api.people import Quota, StorageUse
from trainwright.contracts.base import Envelope


class DailyUsage(Envelope):
    day: date
    """Day in UTC."""

    device: str
    slot_hours: float


class RunUsage(Envelope):
    run: str
    name: str
    """Empty if the run was deleted."""

    device: str
    slot_hours: float


class MemberUsage(Envelope):
    user: str | None
    """Who submitted the runs. Null if the run was deleted, or its account, before this was recorded."""

    name: str
    """Their current name; empty if `user` is null."""

    in_team: bool
    """Whether they still are a member of the team."""

    service: bool = False
    """Whether it is a service account, and no person."""

    device: str
    slot_hours: float


class DailyMemberUsage(MemberUsage):
    day: date
    """Day in UTC."""


class DailyRunUsage(DailyMemberUsage):
    """Slot-hours of one run on one day, the finest resolution that is stored."""

    run: str
    run_name: str
    """Empty if the run was deleted."""


class Usage(Envelope):
    """Usage of the last days, including today."""

    quota: list[Quota]
    storage: StorageUse
    team_checkpoint_bytes: int = 0
    """Storage of checkpoints and exports of all runs, which does not count toward the storage limit."""

    days: list[DailyUsage]
    """Days with usage, oldest first."""

    members: list[MemberUsage] = []
    """Everybody with usage, by device, the highest first. They add up to the days."""

    runs: list[RunUsage]
    """The twenty runs with the highest usage."""


class MeasuredThroughput(Envelope):
    """The throughput of a run with the same model, batch and precision on the same type of node."""

    run: str
    name: str
    node: str
    when: AwareDatetime
    tokens_per_second: float
    """Median over its steps."""


class RunEstimate(Envelope):
    """Estimated cost of a run."""

    parameters: int
    flops: float
    """FLOPs of the training: steps × tokens per step × FLOPs per token (6·N + 12·L·A·T, as MFU counts them). For a fork only
    the steps after its first checkpoint count; the same holds for time, slot-hours and storage."""

    petaflop_days: float
    memory_bytes: int
    """Memory of the rank that needs most, by formula (`planner/memory.py`); on CPUs including its snapshot and what it offloads."""

    host_bytes: int = 0
    """Host memory of all ranks of a node: for the copies of their state that checkpoints are written from, and for offload."""

    checkpoint_bytes: int
    """Size of one checkpoint, from its dtypes."""

    stored_bytes: int
    """Size of all checkpoints that are kept, and the export."""

    storage: StorageUse
    team_checkpoint_bytes: int = 0
    """Current storage of checkpoints and exports of all runs, which does not count toward the storage limit."""

    measured: MeasuredThroughput | None
    """Empty: no such run has been measured yet, so the time is unknown."""

    seconds: float | None
    seconds_at_peak: float | None = None
    """While nothing was measured: the time at the peak FLOP/s of the fastest node with enough slots, which runs do not reach. Null if the peak of
    one is unknown."""

    slot_hours: float | None
