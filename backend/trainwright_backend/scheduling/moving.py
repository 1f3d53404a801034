"""Moving runs off a node that is slow or must be emptied.

A run that moves saves, as for a pause, leaves all its nodes, and is queued again. It keeps its place in the queue, and its next
attempt is placed without that node. What it learns does not change: it resumes from the step at which it left.

A person moves a single run, if other nodes could take it. If a site admin empties a drained node, all its runs leave it; those
that fit no other node wait.
"""

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from sqlalchemy import Select, select
from sqlalchemy.orm import InstrumentedAttribute

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import FINAL, WITHOUT_TRAINER, RunState, Verdict
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.service import locked_run
from trainwright_backend.runs.state_words import run_is_final, state_in_words
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.runs.transitions import lock_run, stop
from trainwright_backend.scheduling.node_capacity import NodeCapacity, read_capacities, within_reach
from trainwright_backend.scheduling.requirements import needs_of

_Column = TypeVar("_Column")


def move_run(session: Write, team_id: UUID, run_id: str, node: str, by: str, timers: Timers) -> Run:
    """Ask the run's nodes to save and stop it, and place it again without ``node``. Repeating is harmless.

    Raises:
        Conflict: ``run_is_final``; ``run_is_stopping``; ``not_on_node``: the run is not there; ``no_other_node``: too few
            other nodes that are online could run it.
    """
    run = locked_run(session, team_id, run_id)
    if run.state in FINAL:
        raise run_is_final(run)
    if node in run.avoided_nodes:
        return run
    if run.state is RunState.STOPPING and run.verdict not in (Verdict.RETRY, Verdict.MOVE):
        raise Conflict(
            "run_is_stopping", f"This run is already stopping, to {run.verdict}, and is leaving its nodes."
        )
    on = nodes_of(session, run)
    if node not in on:
        where = f"It is on {', '.join(on)}." if on else f"It {state_in_words(run.state)}, on no node."
        raise Conflict("not_on_node", f"This run is not on node {node!r}. {where}")
    avoided = [*run.avoided_nodes, node]
    _check_others(session, run, avoided, timers)
    run.avoided_nodes = avoided
    session.flush()
    if run.state is RunState.STOPPING:  # it is leaving its nodes already, and will be retried
        return run
    return stop(session, run, Verdict.MOVE, EndCode.STOPPED, f"Moved off {node} by {by}")


def runs_on_emptied_nodes() -> Select[UUID]:
    """The runs that have to leave drained nodes."""
    return select(Run.id).where(Run.state.in_(_MOVABLE), Run.id.in_(_on_emptied_nodes(Placement.run_id)))


def move_off_drained(session: Write, run_id: UUID) -> None:
    """Ask a run's nodes to save and stop it, if one of them is to be emptied."""
    run = lock_run(session, run_id)
    if run is None or run.state not in _MOVABLE:
        return
    of_run = (Placement.run_id == run_id, Placement.fence == run.fence)
    leaves = _on_emptied_nodes(Placement.node_name).where(*of_run).order_by(Placement.node_rank)
    if names := session.scalars(leaves).all():
        be = "is" if len(names) == 1 else "are"
        stop(
            session,
            run,
            Verdict.MOVE,
            EndCode.STOPPED,
            f"Moved off {', '.join(names)}, which {be} being emptied",
        )


_MOVABLE = (RunState.STARTING, RunState.RUNNING, RunState.COMPLETING)
"""Earlier, `placement` withdraws the run from drained nodes. Later, the run is leaving its nodes anyway."""


def _on_emptied_nodes(column: InstrumentedAttribute[_Column]) -> Select[_Column]:
    """A column of the open placements on nodes that are to be emptied."""
    emptied = select(Node.id).where(Node.draining, Node.move_runs)
    return select(column).where(Placement.node_id.in_(emptied), Placement.closed.is_(None))


def nodes_of(session: Read, run: Run) -> list[str]:
    """Names of the nodes that work on the run's newest attempt."""
    if run.state in WITHOUT_TRAINER:
        return []
    live = (Placement.run_id == run.id, Placement.fence == run.fence, Placement.closed.is_(None))
    return list(session.scalars(select(Placement.node_name).where(*live).order_by(Placement.node_rank)))


def not_avoided(run: Run, nodes: Sequence[NodeCapacity]) -> Sequence[NodeCapacity]:
    """The nodes that the run may be placed on."""
    if not run.avoided_nodes:
        return nodes
    return [capacity for capacity in nodes if capacity.name not in run.avoided_nodes]


def avoids(run: Run) -> str:
    """The end of a waiting run's sentence if the run was moved off nodes."""
    return f"; not on {', '.join(run.avoided_nodes)}, which it was moved off" if run.avoided_nodes else ""


def _check_others(session: Read, run: Run, avoided: Sequence[str], timers: Timers) -> None:
    needs = needs_of(run, run.min_nodes)
    capable = [
        capacity
        for capacity in read_capacities(session, timers)[0]
        if capacity.name not in avoided and capacity.has_host_memory(needs)
    ]
    found = len(within_reach(capable, needs))
    if found < needs.nodes:
        others = f"only {found}" if found else "no node"
        detail = (
            f"This run needs {needs.nodes} node{'s' if needs.nodes > 1 else ''}, and {others} other than "
            f"{', '.join(avoided)} can run it. Add a node, or pause the run."
        )
        raise Conflict("no_other_node", detail)
