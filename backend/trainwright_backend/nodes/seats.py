"""Who may write for a run: the node that holds a seat of its newest fence.

Every message that writes carries the fence it speaks for. An old one is refused, whatever it says: that is what keeps
a node that was cut off and comes back from touching a run that went on without it. A run that a node was never placed
on does not exist for it.
"""

from uuid import UUID

from sqlalchemy import select

from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, unknown
from trainwright_backend.runs.moves import lock_run
from trainwright_backend.runs.tables import Placement, Run


def run_of_node(session: Write, node_id: UUID, run_id: str) -> Run:
    """The run, held against other writers.

    Raises:
        NotFound: it was deleted, or the node never claimed it.
    """
    run = lock_run(session, parse_id("run", run_id))
    if run is None or not _claims(session, node_id, run):
        raise unknown("run", run_id)
    return run


def check_newest(session: Read, node_id: UUID, run: Run, fence: int) -> None:
    """Let pass what may come late: events and logs of the run's newest fence, from the node that claimed it.

    Raises:
        Conflict: ``stale_fence``.
    """
    mine = {placement.fence for placement in _claims(session, node_id, run)}
    if fence != run.fence or fence not in mine:
        raise stale_fence(run, fence)


def check_open(session: Read, node_id: UUID, run: Run, fence: int) -> None:
    """Let pass what only a live attempt may do: upload and commit checkpoints.

    Raises:
        Conflict: ``stale_fence``; also when the placement is closed.
    """
    check_newest(session, node_id, run, fence)
    if not any(seat.fence == fence and seat.closed is None for seat in _claims(session, node_id, run)):
        raise stale_fence(run, fence)


def check_seat(run: Run, seat: Placement, fence: int) -> None:
    """Let pass what the supervisor of ``seat`` says of its own attempt while that lives.

    Raises:
        Conflict: ``stale_fence``; also when the placement is closed.
    """
    if seat.closed is not None or fence != run.fence or seat.fence != fence:
        raise stale_fence(run, fence)


def seat_of_claim(session: Read, node_id: UUID, run: Run, claim_id: str) -> Placement:
    """The placement that the node claimed under ``claim_id``.

    Raises:
        Conflict: ``stale_fence``: there is none.
    """
    for placement in _claims(session, node_id, run):
        if placement.claim_id == claim_id:
            return placement
    raise Conflict(
        "stale_fence", "This claim is not known: the run was placed anew. Stop, and delete its folder."
    )


def stale_fence(run: Run, fence: int) -> Conflict:
    """The refusal of a write that speaks for an attempt that is over."""
    detail = (
        f"This was written for fence {fence}; the run is {run.state} at fence {run.fence}. Stop this attempt."
    )
    return Conflict("stale_fence", detail, extensions={"fence": run.fence})


def _claims(session: Read, node_id: UUID, run: Run) -> list[Placement]:
    claimed = select(Placement).where(
        Placement.run_id == run.id, Placement.node_id == node_id, Placement.claim_id.is_not(None)
    )
    return list(session.scalars(claimed.order_by(Placement.id)))
