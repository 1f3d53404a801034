"""The runs that occupy slots of one device, as far as a round of placement depends on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, select

from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read
from trainwright_backend.runs.max_time import seconds_left
from trainwright_backend.runs.tables import Attempt, Placement, PlacementSlot, Run, RunSummary

PREEMPTIBLE = (RunState.STARTING, RunState.RUNNING)
"""The states in which a run can give its slots back. An export is short, and the training is done."""


@dataclass(frozen=True, kw_only=True)
class RunOnNodes:
    """A run that occupies slots, and for how long."""

    team_id: UUID
    slots: int
    """On all its nodes together."""
    seconds_left: float | None
    """Expected time on its nodes. None: unknown."""
    run_id: UUID
    created_by: UUID | None
    name: str
    priority: int
    slots_by_node: Mapping[UUID, int]
    leaving: bool
    """It is stopping, so its slots become free soon."""
    attempt_started: datetime | None
    """Empty unless its state is `PREEMPTIBLE`."""
    backfill_until: datetime | None
    """Set if it was placed ahead of its turn: when the run that waits for its slots was expected to start."""
    backfill_for: UUID | None
    """That run."""


def runs_on_nodes(session: Read, device: str) -> list[RunOnNodes]:
    """The runs that occupy slots of ``device``, oldest first."""
    occupied = select(PlacementSlot.placement_id)
    placed = (Placement.device == device, Placement.id.in_(occupied))
    nodes: dict[UUID, list[UUID | None]] = {}
    for run_id, node_id in session.execute(select(Placement.run_id, Placement.node_id).where(*placed)):
        nodes.setdefault(run_id, []).append(node_id)
    runs = session.execute(_rows().where(Run.id.in_(select(Placement.run_id).where(*placed))))
    return [_occupant(run, nodes[run.id]) for run in runs]


def _rows() -> Select[Any]:
    columns: tuple[Any, ...] = (
        Run.id,
        Run.team_id,
        Run.created_by,
        Run.name,
        Run.priority,
        Run.slots,
        Run.nodes,
        Run.state,
        Run.backfill_until,
        Run.backfill_for,
        Run.max_seconds,
        Run.occupied_seconds,
        Run.metered_until,
        Attempt.started,
        RunSummary.values["eta_seconds"].as_float().label("eta_seconds"),
    )
    newest = and_(Attempt.run_id == Run.id, Attempt.number == Run.attempt)
    return (
        select(*columns)
        .outerjoin(Attempt, newest)
        .outerjoin(RunSummary, RunSummary.run_id == Run.id)
        .order_by(Run.id)
    )


def _occupant(run: Any, nodes: Sequence[UUID | None]) -> RunOnNodes:
    """A run from its row and its nodes."""
    return RunOnNodes(
        run_id=run.id,
        team_id=run.team_id,
        created_by=run.created_by,
        name=run.name,
        priority=run.priority,
        slots=run.slots,
        slots_by_node={node_id: run.slots // run.nodes for node_id in nodes if node_id is not None},
        leaving=run.state is RunState.STOPPING,
        attempt_started=run.started if run.state in PREEMPTIBLE else None,
        backfill_until=run.backfill_until,
        backfill_for=run.backfill_for,
        seconds_left=_seconds_left(run),
    )


def _seconds_left(run: Any) -> float | None:
    if run.state is RunState.STOPPING:
        return 0.0
    estimated = run.eta_seconds if run.state is RunState.RUNNING else None
    return shorter(estimated, seconds_left(run.max_seconds, run.occupied_seconds, run.metered_until))


def shorter(one: float | None, other: float | None) -> float | None:
    """The shorter of two durations; the known one if the other is unknown."""
    return min((seconds for seconds in (one, other) if seconds is not None), default=None)
