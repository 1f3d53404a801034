"""Fencing: only the node with a placement of the run's newest fence may write for it.

Every message that writes carries its fence, and an old fence is always refused: a node that was disconnected
and comes back cannot affect a run that continued without it. For a node, runs that were never placed on it do
not exist.
"""

from uuid import UUID

from sqlalchemy import Uuid, bindparam, exists, select

from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import parse_id, unknown
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.runs.transitions import lock_run

_CLAIMS = (
    select(Placement)
    .where(Placement.run_id == bindparam("run_id"), Placement.node_id == bindparam("node_id", type_=Uuid()))
    .where(Placement.claim_id.is_not(None))
    .order_by(Placement.id)
)
"""Built once (see `core.db`): each message of a node needs it several times. The column has the type of the key of another table,
which may not be imported yet."""


def run_of_node(session: Write, node_id: UUID, run_id: str) -> Run:
    """The run, locked against other writers.

    Raises:
        NotFound: it was deleted, or the node never claimed it.
    """
    run = lock_run(session, parse_id("run", run_id))
    if run is None or not _claims(session, node_id, run):
        raise unknown("run", run_id)
    return run


def check_fence(session: Read, node_id: UUID, run: Run, fence: int) -> None:
    """Accept what may arrive late: events and logs of the run's newest fence, from the node that claimed it.

    Raises:
        Conflict: ``stale_fence``.
    """
    mine = {placement.fence for placement in _claims(session, node_id, run)}
    if fence != run.fence or fence not in mine:
        raise stale_fence(run, fence)


def check_live_fence(session: Read, node_id: UUID, run: Run, fence: int) -> None:
    """Accept what only a live attempt may do: upload and commit checkpoints.

    Raises:
        Conflict: ``stale_fence``; also when the placement is closed.
    """
    check_fence(session, node_id, run, fence)
    if not any(
        placement.fence == fence and placement.closed is None for placement in _claims(session, node_id, run)
    ):
        raise stale_fence(run, fence)


def check_placement(run: Run, placement: Placement, fence: int) -> None:
    """Accept messages of the supervisor of ``placement`` about its own, live attempt.

    Raises:
        Conflict: ``stale_fence``; also when the placement is closed.
    """
    if placement.closed is not None or fence != run.fence or placement.fence != fence:
        raise stale_fence(run, fence)


def check_first_node(session: Read, node_id: UUID, run: Run) -> None:
    """Accept what only the first node of the run's newest attempt does: send events, commit checkpoints, and export.

    Raises:
        Conflict: ``other_node``.
    """
    if _node_rank(session, node_id, run) != 0:
        raise Conflict(
            "other_node",
            "Only the first node of a run sends its events, commits its checkpoints, and exports it.",
        )


def check_own_log(session: Read, node_id: UUID, run: Run, file: str) -> None:
    """Accept the logs of the node's own ranks, and any other log.

    Raises:
        Conflict: ``other_node``.
    """
    rank = file.removeprefix("rank-").removesuffix(".log")
    per_node = run.slots // run.nodes
    if (
        file == f"rank-{rank}.log"
        and rank.isdecimal()
        and int(rank) // per_node != _node_rank(session, node_id, run)
    ):
        raise Conflict("other_node", f"{file} is the log of another node's rank.")


def _node_rank(session: Read, node_id: UUID, run: Run) -> int | None:
    """The node's position in the run's newest attempt."""
    return next(
        (placement.node_rank for placement in _claims(session, node_id, run) if placement.fence == run.fence),
        None,
    )


def has_other_open_claim(session: Read, node_id: UUID, run: Run) -> bool:
    """Whether another node still works on the run's newest attempt."""
    others = exists().where(
        Placement.run_id == run.id,
        Placement.fence == run.fence,
        Placement.closed.is_(None),
        Placement.node_id != node_id,
    )
    return bool(session.scalar(select(others)))


def placement_of_claim(session: Read, node_id: UUID, run: Run, claim_id: str) -> Placement:
    """The placement that the node claimed under ``claim_id``.

    Raises:
        Conflict: ``stale_fence``: there is none.
    """
    for placement in _claims(session, node_id, run):
        if placement.claim_id == claim_id:
            return placement
    raise Conflict(
        "stale_fence", "This claim is unknown: the run was placed again. Stop, and delete its folder."
    )


def stale_fence(run: Run, fence: int) -> Conflict:
    """The refusal of a write for an attempt that is over."""
    detail = (
        f"This message is for fence {fence}; the run is {run.state} at fence {run.fence}. Stop this attempt."
    )
    return Conflict("stale_fence", detail, extensions={"fence": run.fence})


def _claims(session: Read, node_id: UUID, run: Run) -> list[Placement]:
    return list(session.scalars(_CLAIMS, {"run_id": run.id, "node_id": node_id}))
