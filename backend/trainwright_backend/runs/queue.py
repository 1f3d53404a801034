"""The queue of a team, for people: its order, priorities, and changing the order.

Initially a run's place is its id, so runs of equal priority start in the order of their submission. Reordering
exchanges the places of the named runs among themselves: all other runs keep their places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, select

from trainwright.contracts.api.people import Role
from trainwright.contracts.api.queue import Priority, QueuedRun
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict, Forbidden, Invalid
from trainwright_backend.core.ids import parse_id, public_id, unknown
from trainwright_backend.runs.notify import notify_control, notify_run
from trainwright_backend.runs.state_text import queue_text
from trainwright_backend.runs.tables import Run, RunEvent
from trainwright_backend.runs.transitions import STATE_EVENT, add_event, lock_run
from trainwright_backend.teams.limits import RANKS


@dataclass(frozen=True)
class ExpectedStart:
    """When a waiting run is expected to start."""

    at: datetime
    is_rough: bool
    """Whether it depends on runs whose length is only roughly known."""


def queue_order() -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """The order of a team's waiting runs."""
    return Run.priority.desc(), func.coalesce(Run.queue_place, Run.id).asc()


def list_queue(
    session: Read, team_id: UUID, user_id: UUID, starts: Mapping[UUID, ExpectedStart]
) -> list[QueuedRun]:
    """The team's waiting runs, by device and then in the order in which they start.

    Args:
        starts: when runs are expected to start (`scheduling.forecast`).
    """
    rows = session.execute(_waiting(team_id)).all()
    positions: dict[str, int] = {}
    found = []
    for row in rows:
        positions[row.device] = positions.get(row.device, 0) + 1
        start = starts.get(row.id)
        found.append(
            QueuedRun(
                id=public_id("run", row.id),
                name=row.name,
                created_by=row.created_by_name,
                mine=row.created_by == user_id,
                device=row.device,
                slots=row.slots,
                priority=list(Priority)[row.priority],
                position=positions[row.device],
                sentence=queue_text(row.waiting_reason),
                queued=row.queued or row.created,
                expected_start=None if start is None else start.at,
                start_is_rough=start is not None and start.is_rough,
            )
        )
    return found


def set_priority(session: Write, run: Run, priority: Priority, by: str) -> None:
    """Change the priority of a run, which counts while it waits."""
    if run.priority == RANKS[priority]:
        return
    run.priority = RANKS[priority]
    session.flush()
    add_event(session, run, "priority_changed", f"priority {priority}, by {by}")
    notify_control(session)


def reorder(session: Write, team_id: UUID, user_id: UUID, role: Role, ids: Sequence[str], by: str) -> None:
    """Let waiting runs start in the order of ``ids``. Owners can reorder everybody's, others their own.

    Raises:
        Conflict: ``run_not_queued``: one of them does not wait.
        Forbidden: ``not_your_run``.
        Invalid: a run is named twice, or the priorities differ.
        NotFound: the team has no such run.
    """
    runs = _locked(session, team_id, ids)
    for run in runs:
        if run.state is not RunState.QUEUED:
            raise Conflict(
                "run_not_queued", f"{run.name} is {run.state}: only waiting runs can be reordered."
            )
        if role is not Role.OWNER and run.created_by != user_id:
            detail = (
                f"{run.name} was submitted by {run.created_by_name}. Reorder your own runs, or ask an owner."
            )
            raise Forbidden("not_your_run", detail)
        if (run.device, run.priority) != (runs[0].device, runs[0].priority):
            rule = (
                f"{run.name} differs from {runs[0].name} in priority or device. Name runs of one priority and device, or "
                "change the priority."
            )
            raise Invalid.at("runs", rule, public_id("run", run.id))
    places = sorted(run.queue_place or run.id for run in runs)
    for run, place in zip(runs, places, strict=True):
        if place != (run.queue_place or run.id):
            run.queue_place = place
            session.flush()
            add_event(session, run, "reordered", f"moved in the queue by {by}")
            notify_run(session, run.id)
    notify_control(session)


def _locked(session: Write, team_id: UUID, ids: Sequence[str]) -> list[Run]:
    """The runs in the order of ``ids``, locked in one order by everybody who locks several."""
    if len(set(ids)) < len(ids):
        raise Invalid.at("runs", "A run is named twice. Name each once.", list(ids))
    found: dict[str, Run] = {}
    for text in sorted(ids):
        run = lock_run(session, parse_id("run", text))
        if run is None or run.team_id != team_id:
            raise unknown("run", text)
        found[text] = run
    return [found[text] for text in ids]


def _waiting(team_id: UUID) -> Select[Any]:
    """Without the spec, which is wide."""
    since = (
        select(func.max(RunEvent.time))
        .where(RunEvent.run_id == Run.id, RunEvent.type == STATE_EVENT, RunEvent.state == RunState.QUEUED)
        .scalar_subquery()
        .label("queued")
    )
    columns: tuple[Any, ...] = (
        Run.id,
        Run.name,
        Run.created,
        Run.created_by,
        Run.created_by_name,
        Run.device,
        Run.slots,
        Run.priority,
        Run.waiting_reason,
        since,
    )
    waiting = select(*columns).where(Run.team_id == team_id, Run.state == RunState.QUEUED)
    return waiting.order_by(Run.device.desc(), *queue_order())
