"""Hangs: no rank of a run makes progress.

In its renewals, each node's supervisor reports where its ranks have stalled. Once all nodes of the attempt have reported a
stall, the attempt ends as `hang`, and its message names the rank that the others wait for. If a run hangs while
it saves, to pause or to move, it is stopped, and later resumes from the newest checkpoint.
"""

from sqlalchemy import select

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.job_spec import JobSpec, Outcome
from trainwright.contracts.rank_progress import Stall
from trainwright.contracts.run_state import SAVING_VERDICTS, RunState
from trainwright_backend.attempts.attempt_end import end_attempt
from trainwright_backend.attempts.hang_diagnosis import Diagnosis, PlacedRank, diagnose
from trainwright_backend.core.db import Read, Write
from trainwright_backend.nodes.quarantine import note_failure
from trainwright_backend.runs.tables import Placement, Run
from trainwright_backend.runs.transitions import add_event


def note_stall(session: Write, run: Run, placement: Placement, stall: Stall | None, timers: Timers) -> bool:
    """Store where the node's ranks have stalled. End the attempt if the ranks of all its nodes have.

    Returns:
        Whether the attempt hangs.
    """
    is_first_report = placement.stall is None
    placement.stall = None if stall is None else stall.model_dump(mode="json")
    if stall is None:
        return False
    session.flush()
    saving = run.state is RunState.STOPPING and run.verdict in SAVING_VERDICTS
    if run.state is not RunState.RUNNING and not saving:
        return False
    placements = _open_placements(session, run)
    if any(each.stall is None for each in placements):
        return False
    found = _diagnose(run, placements)
    stalls = [Stall.model_validate(each.stall) for each in placements]
    message = f"{found.sentence} No rank made progress for {min(each.seconds for each in stalls):.0f} s"
    limits = [each.limit_seconds for each in stalls if each.limit_seconds is not None]
    message += f"; the limit was {max(limits):.0f} s." if limits else "."
    if is_first_report or not saving:
        _suspect(session, run, placements, found)
    if not saving:
        rank = found.culprits[0] if found.culprits else None
        end_attempt(session, run, Outcome(code=EndCode.HANG, message=message, rank=rank), timers)
    elif is_first_report:
        add_event(session, run, "note", f"The attempt hung while saving: {message}")
    return True


def is_rank_stopped(session: Read, run: Run) -> bool:
    """Whether a node of a run on several nodes reports a rank whose process is stopped."""
    if run.nodes == 1:
        return False
    stalls = [Stall.model_validate(each.stall) for each in _open_placements(session, run) if each.stall]
    return any(rank.stopped for stall in stalls for rank in stall.ranks)


def _suspect(session: Write, run: Run, placements: list[Placement], found: Diagnosis) -> None:
    """Record a failure of each node with a rank that the others wait for, unless more than half of the nodes have one: then
    the nodes are not the cause."""
    per_node = run.slots // run.nodes
    suspected = {rank // per_node for rank in found.culprits}
    in_order_of_locks = sorted(placements, key=lambda each: str(each.node_id))  # as in `placement.place`
    for placement in in_order_of_locks:
        if placement.node_rank in suspected and len(suspected) <= max(1, run.nodes // 2):
            note_failure(session, placement.node_id, EndCode.HANG, found.sentence)


def _open_placements(session: Read, run: Run) -> list[Placement]:
    attempt = (Placement.run_id == run.id, Placement.fence == run.fence, Placement.closed.is_(None))
    return list(session.scalars(select(Placement).where(*attempt).order_by(Placement.node_rank)))


def _diagnose(run: Run, placements: list[Placement]) -> Diagnosis:
    per_node = run.slots // run.nodes
    ranks: dict[int, PlacedRank] = {}
    for placement in placements:
        stall = Stall.model_validate(placement.stall)
        own = range(placement.node_rank * per_node, (placement.node_rank + 1) * per_node)
        for each in stall.ranks:
            if each.rank in own:  # a node cannot report ranks of other nodes
                ranks[each.rank] = PlacedRank(placement.node_name, each.position, each.stopped)
    job = JobSpec.model_validate(placements[0].job)
    return diagnose(ranks, job.spec.degrees)
