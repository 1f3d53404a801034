"""What a team has used, and what a run would use."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime

from trainwright.contracts.api.people import Quota, StorageUse
from trainwright.contracts.base import Envelope


class UsedDay(Envelope):
    day: date
    """In UTC."""

    device: str
    slot_hours: float


class UsedByRun(Envelope):
    run: str
    name: str
    """Empty once the run was deleted."""

    device: str
    slot_hours: float


class Usage(Envelope):
    """Of the days asked for, the last one being today."""

    quota: list[Quota]
    storage: StorageUse
    team_checkpoint_bytes: int = 0
    """What checkpoints and exports of all runs occupy, beside the storage, whose limit does not count them."""

    days: list[UsedDay]
    """Days on which something was used, oldest first."""

    runs: list[UsedByRun]
    """The twenty that used most."""


class Measured(Envelope):
    """A run of the same model, batch and precision on the same kind of node, and how fast it was."""

    run: str
    name: str
    node: str
    when: AwareDatetime
    tokens_per_second: float
    """Median of its steps."""


class RunEstimate(Envelope):
    """What a run for a spec would come to."""

    parameters: int
    flops: float
    """Of the whole training: steps × tokens a step × FLOPs a token (6·N + 12·L·A·T, as MFU counts). Of a fork the steps
    after the one that it begins at; so are time, slot-hours and what is stored."""

    petaflop_days: float
    memory_bytes: int
    """Of the fullest rank, by formulas (`planner/memory.py`)."""

    host_bytes: int = 0
    """What all ranks of a node put into its own memory, by offload."""

    checkpoint_bytes: int
    """One state, by the formula of its dtypes."""

    stored_bytes: int
    """All checkpoints that are kept, and the export."""

    storage: StorageUse
    team_checkpoint_bytes: int = 0
    """What checkpoints and exports of all runs occupy now, beside the storage, whose limit does not count them."""

    measured: Measured | None
    """Empty: no such run was measured yet, and time is not known."""

    seconds: float | None
    slot_hours: float | None
