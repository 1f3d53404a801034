"""The states of the model check's machines: nodes, the attempts on them, and messages that have not arrived yet.

A `World` is one state of all machines, and a `Move` is a possible next event. A move has a cost if it is a disturbance,
and a check allows a number of disturbances. Repairs cost nothing, and every run must be able to end by repairs alone.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import NamedTuple

from tests.backend.attempts.model_check.platform import Message


class Stage(IntEnum):
    """The condition of an attempt on a node."""

    UNCLAIMED = 0
    """A folder with a claim id, and no supervisor yet."""
    SUPERVISED = 1
    ENDED = 2
    """Its supervisor has written `exit.json`, and renews until the platform has accepted the end."""
    LEFT = 3
    """`exit.json` exists, and no supervisor runs."""
    LOST = 4
    """The supervisor died before it wrote `exit.json`."""


class Progress(IntEnum):
    """The progress of the trainer of a supervised attempt."""

    WAITING = 0
    STARTED = 1
    STEPPING = 2
    EXPORTING = 3


class Fault(StrEnum):
    """A disturbance."""

    LATE = "late message"
    STALE_HEARTBEAT = "stale heartbeat"
    LAPSE = "a lease is not renewed in time"
    LATE_CLAIM = "an agent claims too slowly"
    CRASH = "rank crashes"
    SUPERVISOR = "supervisor is killed"
    FREEZE = "supervisor is stopped"
    AGENT = "agent dies"
    REBOOT = "node restarts"
    HANG = "rank hangs"
    USER = "user"


class Folder(NamedTuple):
    """An attempt on a node."""

    run: int
    claim: int
    stage: Stage = Stage.UNCLAIMED
    fence: int = 0
    rank: int = 0
    exports_only: bool = False
    progress: Progress = Progress.WAITING
    trainer: bool = False
    age: int | None = None
    """The age of the lease: see `Held`."""
    frozen: bool = False
    hung: bool = False
    """A rank of the attempt hangs. The supervisor reports a stall only after the first step; before it, the start's time
    limit ends the attempt."""
    saving: bool = False
    code: str = ""


class Late(NamedTuple):
    """A message that has not arrived yet."""

    kind: str
    """`request`, or the `reply` to a renewal."""
    claim: int
    message: Message
    order: str = ""
    since: int = 0
    """Ticks since the request was sent."""


class Machine(NamedTuple):
    """A node."""

    agent: bool = True
    folders: tuple[Folder, ...] = ()
    late: Late | None = None
    created: int = 0
    """Claim ids that its agent has created."""


class World(NamedTuple):
    """One state of all machines."""

    rows: int
    machines: tuple[Machine, ...]
    seen: tuple[tuple[int, str, int], ...] = ()
    """Node, claim and ticks since its last renewal, as the reaper counts them, of each open claim."""
    faults_left: int = 0
    asks_left: frozenset[str] = frozenset()
    """The requests that users may still make."""


class Move(NamedTuple):
    """A possible event, and the world after it."""

    name: str
    world: World
    repairs: bool = True
    """Whether it is neither a disturbance nor a person's action: every run must be able to end by such moves alone."""


@dataclass(frozen=True)
class Rules:
    """The rules that the machines follow. Each is switched off once, as an injected fault."""

    supervisor_fences: bool = True
    """A supervisor kills its trainer at its deadline."""
    has_guard: bool = True
    """Each supervisor has a guard, which kills a stopped one with its trainer."""
    watchdog: bool = False
    """Without both, a live agent kills processes that have missed their deadline."""
    renewal_first: bool = True
    """A supervisor starts nothing before a renewal is answered with `go`."""
    dies_with_supervisor: bool = True
    """A supervisor's death ends its trainer."""
    limits_start: bool = True
    """A supervisor ends a start that takes too long."""


ALL_RULES = Rules()


def claim_id(node: int, claim: int) -> str:
    return f"node-{node}-claim-{claim:04d}"
