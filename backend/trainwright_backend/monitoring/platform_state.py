"""The state of the platform as the database has it: runs, queue, nodes, slots, jobs, stored bytes.

Three statements in one snapshot read all of it: the counts, as one UNION of rows of the same shape, the nodes, and the newest
backup. Any process reads the same, so counts of the platform do not depend on which process is scraped.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CompoundSelect,
    Float,
    Select,
    SQLColumnExpression,
    String,
    case,
    cast,
    func,
    literal,
    null,
    select,
    type_coerce,
    union_all,
)

from trainwright.contracts.agent_protocol import Inventory, Timers
from trainwright.contracts.hardware import HardwareUse
from trainwright.contracts.run_state import RunState
from trainwright_backend.auth.tables import Team
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.completed_backups import newest_backup
from trainwright_backend.core.db import Read, now
from trainwright_backend.datasets.job_queue import JobKind, due_rows
from trainwright_backend.datasets.tables import (
    DatasetVersion,
    FileChunk,
    ParsedFile,
    Preparation,
    PreparationChunk,
)
from trainwright_backend.nodes.inventory import (
    Slots,
    free_slots,
    inventory_of,
    is_online,
    slots_of,
    takes_runs,
)
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import PlacementSlot, Run
from trainwright_backend.scheduling.waiting_reasons import waiting_class
from trainwright_backend.teams.tables import WebhookDelivery
from trainwright_backend.uploads.tables import StoredFile

LEASED = (
    (JobKind.PARSE, ParsedFile),
    (JobKind.CURATE, DatasetVersion),
    (JobKind.PREPARE, Preparation),
    (JobKind.PREPARE, PreparationChunk),
)
"""Tables whose rows a worker leases for a job."""

Label = SQLColumnExpression[str] | None
Value = SQLColumnExpression[Any] | None


@dataclass(frozen=True)
class TeamTraining:
    """The running runs of a team."""

    runs: int
    tokens_per_second: float
    """The rate of all of them together."""
    mfu: float | None
    """Mean of those whose MFU is known."""


@dataclass(frozen=True)
class NodeReading:
    """A node at the time of the reading."""

    name: str
    state: str
    """`online`, `drained`, `quarantined` or `offline`."""
    heartbeat_age_seconds: float
    """Since its join, if it has sent none."""
    inventory: Inventory
    hardware: HardwareUse | None
    """Empty while it is offline."""


@dataclass
class PlatformState:
    """The state at one moment."""

    runs: Counter[str] = field(default_factory=Counter)
    """Number of runs, by state."""
    queue: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Waiting runs by state (`queued`, `retry_wait`), device, and what they wait for: a `WaitingClass`, or the end code
    after which they are retried."""
    teams: dict[str, TeamTraining] = field(default_factory=dict)
    """Teams with running runs, by slug."""
    slots: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of slots, by device and by `used`, `free` or `unavailable` (on nodes that take no runs, or still busy)."""
    nodes: list[NodeReading] = field(default_factory=list)
    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Dataset jobs by kind and `due` or `running`. Chunks of a preparation count as running jobs, not as due ones."""
    oldest_due_seconds: dict[str, float] = field(default_factory=dict)
    """Age of the oldest data with a due job, by kind of job."""
    stored_bytes: dict[str, float] = field(default_factory=dict)
    """Uploads, prepared data and checkpoints."""
    due_webhook_messages: int = 0
    """Including those that wait for their next attempt."""
    newest_backup: datetime | None = None
    """The time whose state it has."""


def read_platform_state(session: Read, timers: Timers) -> PlatformState:
    """Read the state in three statements."""
    state, at = PlatformState(), now()
    taken: dict[UUID, dict[str, set[int]]] = {}
    for series, first, second, third, number, total, mean in session.execute(_counts(at)):
        count = int(number or 0)
        match series:
            case "runs":
                state.runs[first] = count
            case "queue":
                reason = waiting_class(third) if first == RunState.QUEUED else third
                state.queue[first, second, reason] += count
            case "team":
                state.teams[first] = TeamTraining(count, total or 0.0, mean)
            case "slot":
                taken.setdefault(UUID(first), {}).setdefault(second, set()).add(int(third))
            case "jobs":
                state.jobs[first, second] += count
                if third:
                    state.oldest_due_seconds[first] = max((at - _created(third)).total_seconds(), 0.0)
            case "stored":
                state.stored_bytes[first] = number or 0.0
            case "webhooks":
                state.due_webhook_messages = count
    for node in session.scalars(select(Node).order_by(Node.name)):
        _add_node(state, node, taken.get(node.id, {}), at, timers)
    state.newest_backup = newest_backup(session)
    return state


def _add_node(state: PlatformState, node: Node, taken: Slots, at: datetime, timers: Timers) -> None:
    online = is_online(node, at, timers)
    unused = free_slots(node, taken) if online and takes_runs(node) else {}
    for device, indices in slots_of(node).items():
        used = len(taken.get(device, ()))
        free = len(unused.get(device, []))
        state.slots[device, "used"] += used
        state.slots[device, "free"] += free
        state.slots[device, "unavailable"] += max(len(indices) - used - free, 0)
    state.nodes.append(
        NodeReading(
            name=node.name,
            state=_state_of(node, online=online),
            heartbeat_age_seconds=(at - (node.last_heartbeat or node.joined)).total_seconds(),
            inventory=inventory_of(node),
            hardware=HardwareUse.model_validate(node.hardware) if online and node.hardware else None,
        )
    )


def _state_of(node: Node, *, online: bool) -> str:
    if not online:
        return "offline"
    if node.quarantined is not None:
        return "quarantined"
    return "drained" if node.draining else "online"


def _counts(at: datetime) -> CompoundSelect[Any]:
    """Rows of a series, three labels, a count, a sum and a mean."""
    return union_all(
        _runs(),
        _queue(),
        _teams(),
        _row(
            "slot",
            cast(PlacementSlot.node_id, String),
            PlacementSlot.device,
            cast(PlacementSlot.slot_index, String),
        ),
        *_jobs(at),
        _row("stored", literal("uploads"), number=func.sum(StoredFile.bytes)),
        _row("stored", literal("chunks"), number=func.sum(FileChunk.bytes)),
        _row("stored", literal("shards"), number=func.sum(Preparation.stored_bytes)),
        _row("stored", literal("checkpoints"), number=func.sum(Checkpoint.bytes)),
        _row("webhooks", number=func.count()).where(WebhookDelivery.next_attempt.is_not(None)),
    )


def _row(
    series: str,
    first: Label = None,
    second: Label = None,
    third: Label = None,
    number: Value = None,
    total: Value = None,
    mean: Value = None,
) -> Select[Any]:
    labels = [literal("") if label is None else label for label in (first, second, third)]
    numbers = [cast(null() if value is None else value, Float) for value in (number, total, mean)]
    columns: tuple[Any, ...] = (literal(series), *labels, *numbers)
    return select(*columns)


def _runs() -> Select[Any]:
    """All runs by state, which an index has: their rows are wide."""
    state = type_coerce(Run.state, String)
    return _row("runs", state, number=func.count()).group_by(state)


def _queue() -> Select[Any]:
    """Waiting runs. In a subquery, because PostgreSQL does not recognize an expression with parameters in GROUP BY."""
    waits_for = case(
        (Run.state == RunState.QUEUED, Run.waiting_reason),
        else_=func.coalesce(type_coerce(Run.reason, String), ""),
    )
    columns = (type_coerce(Run.state, String).label("state"), Run.device, waits_for.label("why"))
    waiting = select(*columns).where(Run.state.in_((RunState.QUEUED, RunState.RETRY_WAIT))).subquery()
    labels = (waiting.c.state, waiting.c.device, waiting.c.why)
    return _row("queue", *labels, number=func.count()).group_by(*labels)


def _teams() -> Select[Any]:
    numbers = (func.count(), func.sum(Run.tokens_per_second), func.avg(Run.mfu))
    rows = _row("team", Team.slug, None, None, *numbers).join(Run, Run.team_id == Team.id)
    return rows.where(Run.state == RunState.RUNNING).group_by(Team.slug)


def _jobs(at: datetime) -> Iterator[Select[Any]]:
    """Due rows of each kind with the smallest id, which says when the oldest was created; then the leased ones."""
    for kind in JobKind:
        due = due_rows(kind).subquery()
        oldest = func.coalesce(func.min(cast(due.c.id, String)), "")
        yield _row("jobs", literal(kind.value), literal("due"), oldest, func.count())
    for kind, table in LEASED:
        yield _row("jobs", literal(kind.value), literal("running"), number=func.count()).where(
            table.leased_until >= at
        )


def _created(row_id: str) -> datetime:
    """When the row with this UUIDv7 was created."""
    return datetime.fromtimestamp((UUID(row_id).int >> 80) / 1_000, UTC)
