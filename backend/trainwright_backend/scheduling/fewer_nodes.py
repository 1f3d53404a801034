"""Elastic runs: an attempt on fewer nodes than the run asks for, if too few are free.

This is for runs with `resources.min_nodes` that have had an attempt, because a new run can wait for its turn. Such a run first
waits `SPARE_SECONDS` in the queue, in which a lost node may come back. Then its next attempt gets the largest number of
free nodes on which its layout works. It has fewer data ranks, which accumulate the gradients of more micro batches, so the
global batch and the data order do not change.

`run.nodes` and `run.slots` are those of the attempt while it is placed. The spec keeps the number of requested nodes, for which
every later attempt looks first. An attempt does not grow when a node comes back.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import func, select

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.runs.state_text import duration
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Run, RunEvent
from trainwright_backend.runs.transitions import add_event
from trainwright_backend.scheduling.requirements import Needs, needs_of

SPARE_SECONDS = 300.0
"""Time in the queue before a run continues with fewer nodes (at the standard lease). A server restarts in a few minutes."""

EVENT = "fewer_nodes"


def spare_wait_seconds(timers: Timers) -> float:
    return SPARE_SECONDS * timers.scale


def elastic_runs(session: Read, runs: Sequence[Run], timers: Timers) -> Mapping[UUID, bool]:
    """The waiting runs that may go on with fewer nodes, and whether they have waited long enough for it."""
    elastic = [run.id for run in runs if run.attempt and run.min_nodes < run.nodes]
    if not elastic:
        return {}
    queued = (RunEvent.run_id.in_(elastic), RunEvent.state == RunState.QUEUED)
    rows = session.execute(
        select(RunEvent.run_id, func.max(RunEvent.time)).where(*queued).group_by(RunEvent.run_id)
    )
    return {run_id: _waited(since, timers) for run_id, since in rows}


def _waited(since: datetime, timers: Timers) -> bool:
    return (now() - since).total_seconds() >= spare_wait_seconds(timers)


def needs_on_fewer(run: Run, most: int) -> Iterator[Needs]:
    """The needs of an attempt on fewer nodes than the run asks for, at most ``most``; those on more nodes first."""
    try:
        spec = stored_spec(run)
    except ValidationError:  # of another version, whose rules differed
        return
    for nodes in range(min(most, run.nodes - 1), run.min_nodes - 1, -1):
        if spec.fits_nodes(nodes):
            yield needs_of(run, nodes)


def may_run_on(run: Run, nodes: int) -> bool:
    """Whether the run's layout works on ``nodes`` nodes. People may have changed it since the number was chosen."""
    return nodes == run.requested_nodes or stored_spec(run).fits_nodes(nodes)


def waits_for_spare(run: Run, timers: Timers) -> str:
    """The end of a waiting run's sentence."""
    least = f"{run.min_nodes} node{'s' if run.min_nodes > 1 else ''}"
    return f"; continues with {least} or more after {duration(spare_wait_seconds(timers))}"


def note_fewer_nodes(session: Write, run: Run, spec: RunSpec) -> None:
    """Record that the attempt that starts with ``spec`` has fewer nodes than the run asks for."""
    if run.nodes == run.requested_nodes:
        return
    whole = spec.on_nodes(run.requested_nodes)
    add_event(
        session,
        run,
        EVENT,
        f"attempt {run.attempt} continues with {run.nodes} of {run.requested_nodes} nodes, because no others were free: "
        f"data {whole.degrees.data} → {spec.degrees.data}, micro batches per step {whole.accumulation_steps} → "
        f"{spec.accumulation_steps}. The global batch does not change. The next attempt looks for {run.requested_nodes} nodes again",
    )
