"""Rolling back a new layout whose attempt ended before its first step: choosing the layout in which the run continues.

Users can change the layout of a healthy run, and only an attempt on a node shows whether the new layout works: it
depends on installed software, free memory and the trainer's checks. So if an attempt ends before the first step in a
layout that never made one, the layout counts as the cause and not the run, as long as another layout did make steps.
This module chooses the next layout, and `attempt_end` applies it. Once a layout has made a step, its ends count as the
run's.

The same holds for the first attempt on fewer nodes than the run asks for (`fewer_nodes`), each of whose ranks may need more memory:
the run then waits for all its nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select

from trainwright.contracts.api.actions import RunLayout
from trainwright.contracts.end_codes import EndClass, EndCode, end_class
from trainwright.contracts.job_spec import JobKind
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read
from trainwright_backend.metrics.tables import MetricSeries
from trainwright_backend.runs.attempts import layout_of
from trainwright_backend.runs.tables import Placement, Run, RunEvent
from trainwright_backend.runs.transitions import STATE_EVENT


@dataclass(frozen=True)
class LayoutAttempt:
    """A training attempt and its layout."""

    attempt: int
    fence: int
    layout: RunLayout
    nodes: int


def may_be_caused_by_layout(code: EndCode, fail_code: EndCode | None) -> bool:
    """Whether an end before the first step may be due to the layout, and not to the network, a disk or the node.

    Args:
        fail_code: why the run would fail after this end; None if it would be retried.
    """
    if end_class(code) is EndClass.USER or code in (
        EndCode.CRASHED,
        EndCode.DIVERGED,
        EndCode.START_TIMEOUT,
    ):
        return True
    return fail_code is EndCode.POISON  # host memory that runs out takes the supervisor


def layout_to_roll_back_to(session: Read, run: Run) -> RunLayout | None:
    """The layout for the attempt after this one, which ended early.

    Returns:
        The newest layout that made steps, or the one that was chosen in the meantime; None if this attempt's layout
        made a step, or no layout did.
    """
    tried = _tried(session, run)
    if not tried or tried[0].fence != run.fence:
        return None
    current = tried[0].layout
    stepped = _stepped(session, run)
    good = [item.layout for item in tried if item.attempt in stepped]
    if current in good or not good:
        return None
    chosen = layout_of(run.spec)
    return good[0] if chosen == current else chosen


def may_be_caused_by_fewer_nodes(session: Read, run: Run) -> bool:
    """Whether this attempt, on fewer nodes than the run asks for, made no step, and one on more nodes did."""
    tried = _tried(session, run)
    if not tried or tried[0].fence != run.fence or tried[0].nodes >= run.requested_nodes:
        return False
    stepped = _stepped(session, run)
    on_more = any(item.nodes > tried[0].nodes and item.attempt in stepped for item in tried)
    return on_more and tried[0].attempt not in stepped


def _tried(session: Read, run: Run) -> list[LayoutAttempt]:
    """Training attempts with a layout that this version can read, newest first."""
    claimed = select(Placement.fence, Placement.job).where(
        Placement.run_id == run.id, Placement.job.is_not(None)
    )
    rows: Sequence[Any] = session.execute(claimed.order_by(Placement.fence.desc(), Placement.id)).all()
    found = []
    for fence, job in rows:
        if job["kind"] != JobKind.TRAIN:
            continue
        try:
            found.append(LayoutAttempt(job["attempt"], fence, layout_of(job["spec"]), job.get("nodes", 1)))
        except ValidationError:  # written by a version with other rules
            continue
    return found


def _stepped(session: Read, run: Run) -> set[int]:
    """Attempts that made a step, by their supervisor's reports or their stored metrics."""
    running = select(RunEvent.attempt).where(
        RunEvent.run_id == run.id, RunEvent.type == STATE_EVENT, RunEvent.state == RunState.RUNNING
    )
    measured = select(MetricSeries.attempt).where(MetricSeries.run_id == run.id, MetricSeries.last_step > 0)
    return set(session.scalars(running)) | set(session.scalars(measured))
