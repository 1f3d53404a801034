"""The end of an attempt: the run succeeds, is retried, or ends.

An end is accepted once everything that was shipped before it is stored. Accepting it closes the placement, and
repeating it is harmless. A run on several nodes ends when the placements on all of them are closed: if one ends early,
the others are stopped. `retry_policy` decides whether a run is retried. It does not count an end that a new layout may
have caused: the run then continues in another layout (`layout_rollback`).
"""

from uuid import UUID

from sqlalchemy import update

from trainwright.contracts.agent_protocol import EndReply, EndReport, Timers
from trainwright.contracts.end_codes import EndClass, EndCode, end_class, sentence
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.run_state import SAVING_VERDICTS, RunState, Verdict
from trainwright_backend.attempts.advance import advance
from trainwright_backend.attempts.fencing import check_placement, placement_of_claim, run_of_node
from trainwright_backend.attempts.layout_rollback import (
    layout_to_roll_back_to,
    may_be_caused_by_fewer_nodes,
    may_be_caused_by_layout,
)
from trainwright_backend.attempts.retry_policy import PLANNED_ENDS, reason_not_to_retry, retry_at
from trainwright_backend.checkpoints.fork import mark_parent_invalid
from trainwright_backend.checkpoints.resume import has_lost_resume_point
from trainwright_backend.checkpoints.service import has_export, last_checkpoint, mark_invalid
from trainwright_backend.core.db import Read, Write
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.nodes.quarantine import note_failure
from trainwright_backend.runs.attempt_files import stored_bytes
from trainwright_backend.runs.layout import require_all_nodes, roll_back_layout
from trainwright_backend.runs.state_text import end_text, failed_text, lost_resume_point_text
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Attempt, Placement, PlacementEnd, Run
from trainwright_backend.runs.transitions import (
    add_event,
    has_open_claim,
    lock_run,
    move,
    set_attempt_reason,
    settle,
    stop,
)


def report_end(session: Write, node_id: UUID, run_id: str, report: EndReport, timers: Timers) -> EndReply:
    """Accept the end of an attempt. Repeating a report returns the same response.

    Raises:
        Conflict: ``stale_fence``; ``file_short`` with file and stored offset; ``not_exported``.
    """
    run = run_of_node(session, node_id, run_id)
    placement = placement_of_claim(session, node_id, run, report.claim_id)
    if placement.closed is PlacementEnd.ENDED:
        return EndReply(state=run.state, code=placement.end_reason or report.exit.code)
    check_placement(run, placement, report.fence)
    _check_shipped(session, run, report.offsets)
    finished = report.exit.code is EndCode.FINISHED
    exported = has_export(session, run)
    exports_here = placement.node_rank == 0
    if finished and exports_here and not exported and run.state is not RunState.STOPPING:
        raise Conflict(
            "not_exported", "The export of this attempt is not committed yet. Send it, then report again."
        )
    close_placement(session, placement, PlacementEnd.ENDED, report.exit.code)
    if report.exit.code is EndCode.NODE_REBOOTED:
        note_failure(session, node_id, report.exit.code, sentence(report.exit.code))
    if run.state is RunState.STOPPING:
        if run.verdict in SAVING_VERDICTS:
            _note_saving_end(session, run, report.exit)
        elif _names_cause(run, report.exit):
            end_attempt(session, run, report.exit, timers)
        settle(session, run, finished=_trained(run) if exported else "")
    elif finished or _has_done_its_part(session, run, placement):
        _succeed_if_complete(session, run)
    else:
        end_attempt(session, run, report.exit, timers)
    return EndReply(state=run.state, code=report.exit.code)


def _names_cause(run: Run, exit: Outcome) -> bool:
    """Whether a node reports the cause of an end, while another node only noticed that a rank was gone. Some libraries
    end the process that notices it, which is reported as a crash."""
    if exit.code in (EndCode.RANK_LOST, *PLANNED_ENDS):
        return False
    crashed_elsewhere = run.reason is EndCode.CRASHED and run.verdict is Verdict.RETRY
    return run.reason is EndCode.RANK_LOST or (
        crashed_elsewhere and end_class(exit.code) in (EndClass.USER, EndClass.DIVERGED)
    )


def _has_done_its_part(session: Read, run: Run, placement: Placement) -> bool:
    """Whether only the first node has something left to do: the last checkpoint, with this node's files, is stored."""
    return placement.node_rank != 0 and last_checkpoint(session, run) is not None


def _succeed_if_complete(session: Write, run: Run) -> None:
    """Let the run succeed if it has its export and all nodes have ended."""
    if has_export(session, run) and not has_open_claim(session, run):
        advance(session, run, RunState.COMPLETING)
        move(session, run, RunState.SUCCEEDED, _trained(run), reason=EndCode.FINISHED)


def _trained(run: Run) -> str:
    return f"trained {stored_spec(run).schedule.steps:,} steps"


def close_placement(session: Write, placement: Placement, how: PlacementEnd, code: EndCode) -> None:
    """Close a placement whose processes have ended or whose lease has expired."""
    placement.closed = how
    placement.end_reason = code
    session.flush()


def expire_lease(session: Write, placement_id: UUID, seen_renewal: int, timers: Timers) -> bool:
    """Close a placement whose lease expired, unless it was renewed in the meantime.

    Returns:
        False if it was renewed or closed after ``seen_renewal`` was read.
    """
    placement = session.get(Placement, placement_id)
    run = None if placement is None else lock_run(session, placement.run_id)
    if placement is None or run is None:
        return False
    silent = (
        Placement.id == placement_id,
        Placement.fence == run.fence,
        Placement.renewal == seen_renewal,
        Placement.closed.is_(None),
    )
    closed = update(Placement).where(*silent)
    if not session.change(closed.values(closed=PlacementEnd.EXPIRED, end_reason=EndCode.LEASE_EXPIRED)):
        return False
    seconds = placement.lease_seconds or timers.lease_seconds
    message = f"{placement.node_name} was silent for {seconds:g} s"
    note_failure(session, placement.node_id, EndCode.LEASE_EXPIRED, f"{message}.")
    exit = Outcome(code=EndCode.LEASE_EXPIRED, message=message)
    if run.state is RunState.STOPPING:
        if run.verdict not in SAVING_VERDICTS and _names_cause(run, exit):
            end_attempt(session, run, exit, timers)
        settle(session, run, finished=_trained(run) if has_export(session, run) else "")
    elif _has_done_its_part(session, run, placement):
        _succeed_if_complete(session, run)
    else:
        end_attempt(session, run, exit, timers)
    return True


def end_attempt(session: Write, run: Run, exit: Outcome, timers: Timers) -> Run:
    """Handle the early end of an attempt: the run is retried later, possibly in another layout, or fails."""
    reported, exit = exit.code, _as_unplanned(exit)
    if exit.code is EndCode.CHECKPOINT_INVALID:
        _mark_damaged(session, run, exit.step)
        if has_lost_resume_point(session, run):
            reason = EndCode.CHECKPOINT_INVALID
            return stop(
                session, run, Verdict.FAIL, reason, lost_resume_point_text(run), attempt_reason=reason
            )
    fail_code = reason_not_to_retry(session, run, exit)
    if exit.code is EndCode.DIVERGED:
        _note_data_read(session, run, exit)
    if may_be_caused_by_layout(reported, fail_code) and (how := _roll_back_layout(session, run, exit)):
        message = f"{_cause(exit)}; continues {how}"
        return stop(session, run, Verdict.RETRY, exit.code, message, retry_at=retry_at(session, run, timers))
    if fail_code is not None:
        message = failed_text(fail_code, exit)
        return stop(session, run, Verdict.FAIL, fail_code, message, attempt_reason=exit.code)
    return stop(
        session,
        run,
        Verdict.RETRY,
        exit.code,
        exit.message or end_text(exit.code, ""),
        retry_at=retry_at(session, run, timers),
    )


def _roll_back_layout(session: Write, run: Run, exit: Outcome) -> str:
    """Give the next attempt a layout, or a number of nodes, that made steps, if this attempt's never did.

    Returns:
        How the run continues; empty if there is nothing to roll back to.
    """
    if may_be_caused_by_fewer_nodes(session, run):
        require_all_nodes(session, run, _cause(exit))
        return f"on {run.requested_nodes} nodes"
    layout = layout_to_roll_back_to(session, run)
    if layout is None:
        return ""
    try:
        roll_back_layout(session, run, layout, _cause(exit))
    except Invalid:  # the rules have changed since that attempt
        return ""
    return "in another layout"


def _note_data_read(session: Write, run: Run, exit: Outcome) -> None:
    """Record the data position of an attempt that diverged, because the next attempt continues after it."""
    attempt = session.get(Attempt, (run.id, run.attempt))
    if attempt is not None:
        attempt.sequences_read = exit.sequences_read


def _cause(exit: Outcome) -> str:
    return exit.message.strip().rstrip(".") or exit.code.value


def _mark_damaged(session: Write, run: Run, step: int | None) -> None:
    """Mark the checkpoint that the attempt started from, the run's own or its parent's, as damaged."""
    mark_parent_invalid(session, run, step)
    mark_invalid(session, run.id, step)


def _note_saving_end(session: Write, run: Run, exit: Outcome) -> None:
    """Record how an attempt ended after it was ordered to save. It is not counted, because the run was stopping
    anyway."""
    if exit.code is EndCode.CHECKPOINT_INVALID:
        _mark_damaged(session, run, exit.step)
    if exit.code not in PLANNED_ENDS:
        words = end_text(exit.code, exit.message)
        add_event(session, run, "note", f"The attempt ended while saving: {words}", step=exit.step)
    elif (attempt := session.get(Attempt, (run.id, run.attempt))) and attempt.reason is EndCode.STOPPED:
        set_attempt_reason(session, run, exit.code)


def _as_unplanned(exit: Outcome) -> Outcome:
    """Treat a planned end that the platform did not order as a crash: the run is retried, and the end counts."""
    if exit.code not in PLANNED_ENDS:
        return exit
    words = f"The attempt ended as {exit.code} without being asked to. {exit.message}".strip()
    return exit.model_copy(update={"code": EndCode.CRASHED, "message": words})


def _check_shipped(session: Read, run: Run, offsets: dict[str, int]) -> None:
    stored = stored_bytes(session, run.id, run.attempt)
    for file, size in sorted(offsets.items()):
        have = stored.get(file, 0)
        if have < size:
            detail = f"{file} has {size} bytes, and {have} are stored: send the rest, then report again."
            raise Conflict("file_short", detail, extensions={"file": file, "offset": have})
