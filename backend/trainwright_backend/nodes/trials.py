"""A new layout on trial: whether it made a step yet, and which one to go on in where its attempt ended before that.

A layout can be changed while a run is healthy, and only the node can tell whether it runs there: what is installed, how
much memory is free, what the trainer checks. So an end before the first step in a layout that never made one speaks against
the layout, not the run, as long as another layout did make steps. This looks and chooses; `ends` acts. From the first
step on a layout stands, and its ends are the run's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select

from trainwright.contracts.api.verbs import RunLayout
from trainwright.contracts.end_codes import EndClass, EndCode, end_class
from trainwright.contracts.job_spec import JobKind
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read
from trainwright_backend.metrics.tables import MetricSeries
from trainwright_backend.runs.attempts import layout_of
from trainwright_backend.runs.moves import STATE_EVENT
from trainwright_backend.runs.tables import Placement, Run, RunEvent


@dataclass(frozen=True)
class Tried:
    """An attempt that was to train, and how it was cut."""

    attempt: int
    fence: int
    layout: RunLayout


def speaks_against_a_layout(code: EndCode, fails_as: EndCode | None) -> bool:
    """Whether an end before the first step may be the layout's doing, and not the doing of network, disk or node.

    Args:
        fails_as: reason for which the run would fail by this end.
    """
    if end_class(code) is EndClass.USER or code in (EndCode.CRASHED, EndCode.START_TIMEOUT):
        return True
    return fails_as is EndCode.POISON  # host memory that runs out takes the supervisor


def layout_to_go_on_in(session: Read, run: Run) -> RunLayout | None:
    """The layout for the attempt after this one, which ended early.

    Returns:
        The newest layout that made steps, or the one that was chosen meanwhile; None when this attempt's layout made a step,
        or no layout did.
    """
    tried = _tried(session, run)
    if not tried or tried[0].fence != run.fence:
        return None
    current = tried[0].layout
    stepped = _stepped(session, run)
    good = [one.layout for one in tried if one.attempt in stepped]
    if current in good or not good:
        return None
    chosen = layout_of(run.spec)
    return good[0] if chosen == current else chosen


def _tried(session: Read, run: Run) -> list[Tried]:
    """Attempts whose layout this version can read, the newest first."""
    claimed = select(Placement.fence, Placement.job).where(
        Placement.run_id == run.id, Placement.job.is_not(None)
    )
    rows: Sequence[Any] = session.execute(claimed.order_by(Placement.fence.desc(), Placement.id)).all()
    found = []
    for fence, job in rows:
        if job["kind"] != JobKind.TRAIN:
            continue
        try:
            found.append(Tried(job["attempt"], fence, layout_of(job["spec"])))
        except ValidationError:  # of a version with other rules
            continue
    return found


def _stepped(session: Read, run: Run) -> set[int]:
    """Attempts that made a step: their supervisor said so, or their numbers are here."""
    running = select(RunEvent.attempt).where(
        RunEvent.run_id == run.id, RunEvent.type == STATE_EVENT, RunEvent.state == RunState.RUNNING
    )
    measured = select(MetricSeries.attempt).where(MetricSeries.run_id == run.id, MetricSeries.last_step > 0)
    return set(session.scalars(running)) | set(session.scalars(measured))
