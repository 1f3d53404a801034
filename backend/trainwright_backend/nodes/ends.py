"""What the end of an attempt means: success, another try, or the end of the run.

An end is accepted once everything that was shipped before it is stored; accepting it closes the placement, and
repeating it is harmless. Ends are counted by class over the attempts since the newest checkpoint, so progress forgives
and standing still does not (`RETRIES`). A damaged checkpoint was progress once: the ends before it stay forgiven, but
ends by damage itself are counted since the newest checkpoint that is still good. An end that speaks against a new layout
(`trials`) counts nowhere: the run goes on in another one.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select, update

from trainwright.contracts.agent_protocol import Ended, EndReport, Timers
from trainwright.contracts.end_codes import RETRIES, EndClass, EndCode, end_class
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.run_state import RunState, Verdict
from trainwright_backend.checkpoints.forks import has_lost_its_beginning, mark_parent_invalid
from trainwright_backend.checkpoints.service import has_export, last_saving_attempt, mark_invalid
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import Conflict, Invalid
from trainwright_backend.nodes.renewals import walk
from trainwright_backend.nodes.seats import check_seat, run_of_node, seat_of_claim
from trainwright_backend.nodes.trials import layout_to_go_on_in, speaks_against_a_layout
from trainwright_backend.runs.files import stored_bytes
from trainwright_backend.runs.layout import PUT_BACK_EVENT, put_back_layout
from trainwright_backend.runs.moves import add_event, blame, lock_run, move, settle, stop
from trainwright_backend.runs.sentences import end_sentence, failed_sentence, lost_beginning_sentence
from trainwright_backend.runs.tables import Attempt, Closed, Placement, Run, RunEvent

FAILS_AS = {EndClass.LOST: EndCode.POISON, EndClass.LAPSE: EndCode.UNREACHABLE}
"""Reason of a run that fails by too many ends of the class; others fail with the last end's own."""

_PLANNED = frozenset(code for code in EndCode if end_class(code) is EndClass.PLANNED)


def report_end(session: Write, node_id: UUID, run_id: str, report: EndReport, timers: Timers) -> Ended:
    """Accept the end of an attempt, or say again that it was accepted.

    Raises:
        Conflict: ``stale_fence``; ``file_short`` with file and stored offset; ``not_exported``.
    """
    run = run_of_node(session, node_id, run_id)
    seat = seat_of_claim(session, node_id, run, report.claim_id)
    if seat.closed is Closed.ENDED:
        return Ended(state=run.state, code=seat.end_reason or report.exit.code)
    check_seat(run, seat, report.fence)
    _check_shipped(session, run, report.offsets)
    finished = report.exit.code is EndCode.FINISHED
    exported = finished and has_export(session, run)
    if finished and not exported and run.state is not RunState.STOPPING:
        raise Conflict(
            "not_exported", "The export of this attempt is not committed yet. Send it, then report again."
        )
    close_seat(session, seat, Closed.ENDED, report.exit.code)
    if run.state is RunState.STOPPING:
        if run.verdict is Verdict.PAUSE:
            _note_paused_end(session, run, report.exit)
        settle(session, run, finished=_trained(run) if exported else "")
    elif finished:
        walk(session, run, RunState.COMPLETING)
        move(session, run, RunState.SUCCEEDED, _trained(run), reason=EndCode.FINISHED)
    else:
        end_attempt(session, run, report.exit, timers)
    return Ended(state=run.state, code=report.exit.code)


def _trained(run: Run) -> str:
    return f"trained {RunSpec.model_validate(run.spec).schedule.steps:,} steps"


def close_seat(session: Write, seat: Placement, how: Closed, code: EndCode) -> None:
    """The seat's processes are gone, or its lease is."""
    seat.closed = how
    seat.end_reason = code
    session.flush()


def lapse(session: Write, placement_id: UUID, seen_renewal: int, timers: Timers) -> bool:
    """Close a placement whose lease ran out, unless it was renewed meanwhile.

    Returns:
        False when it was renewed or closed after ``seen_renewal`` was read.
    """
    seat = session.get(Placement, placement_id)
    run = None if seat is None else lock_run(session, seat.run_id)
    if seat is None or run is None:
        return False
    silent = (
        Placement.id == placement_id,
        Placement.fence == run.fence,
        Placement.renewal == seen_renewal,
        Placement.closed.is_(None),
    )
    closed = update(Placement).where(*silent)
    if not session.change(closed.values(closed=Closed.LAPSED, end_reason=EndCode.LEASE_LAPSED)):
        return False
    if run.state is RunState.STOPPING:
        settle(session, run, finished=_trained(run) if has_export(session, run) else "")
        return True
    seconds = seat.lease_seconds or timers.lease_seconds
    message = f"{seat.node_name} was silent for {seconds:g} s"
    end_attempt(session, run, Outcome(code=EndCode.LEASE_LAPSED, message=message), timers)
    return True


def end_attempt(session: Write, run: Run, exit: Outcome, timers: Timers) -> Run:
    """Stop the run as the early end of its attempt asks: try again after a while, in another layout, or fail."""
    reported, exit = exit.code, _unasked(exit)
    if exit.code is EndCode.CHECKPOINT_INVALID:
        _mark_damaged(session, run, exit.step)
        if has_lost_its_beginning(session, run):
            reason = EndCode.CHECKPOINT_INVALID
            return stop(
                session, run, Verdict.FAIL, reason, lost_beginning_sentence(run), attempt_reason=reason
            )
    fails_as = _fails_as(session, run, exit.code)
    if speaks_against_a_layout(reported, fails_as) and _put_layout_back(session, run, exit):
        message = f"{_cause(exit)}; goes on in another layout"
        return stop(session, run, Verdict.RETRY, exit.code, message, retry_at=_retry_at(session, run, timers))
    if fails_as is not None:
        message = failed_sentence(fails_as, exit.message)
        return stop(session, run, Verdict.FAIL, fails_as, message, attempt_reason=exit.code)
    return stop(
        session,
        run,
        Verdict.RETRY,
        exit.code,
        exit.message or end_sentence(exit.code, ""),
        retry_at=_retry_at(session, run, timers),
    )


def _put_layout_back(session: Write, run: Run, exit: Outcome) -> bool:
    """Give the next attempt a layout that made steps, where this one's never did; False where there is none."""
    layout = layout_to_go_on_in(session, run)
    if layout is None:
        return False
    try:
        put_back_layout(session, run, layout, _cause(exit))
    except Invalid:  # the rules have changed since its attempt
        return False
    return True


def _cause(exit: Outcome) -> str:
    return exit.message.strip().rstrip(".") or exit.code.value


def _mark_damaged(session: Write, run: Run, step: int | None) -> None:
    """The checkpoint that the attempt began from, its own or its parent's, is not what was committed."""
    mark_parent_invalid(session, run, step)
    mark_invalid(session, run.id, step)


def _note_paused_end(session: Write, run: Run, exit: Outcome) -> None:
    """What became of an attempt that was asked to save. However it ended, it does not count: the run was to stop."""
    if exit.code is EndCode.CHECKPOINT_INVALID:
        _mark_damaged(session, run, exit.step)
    if exit.code not in _PLANNED:
        words = end_sentence(exit.code, exit.message)
        add_event(session, run, "note", f"It was to save and ended otherwise: {words}", step=exit.step)
    elif (attempt := session.get(Attempt, (run.id, run.attempt))) and attempt.reason is EndCode.STOPPED:
        blame(session, run, exit.code)


def _unasked(exit: Outcome) -> Outcome:
    """A planned end that nobody planned is a crash: whoever sent the signal, it is tried again and counted."""
    if exit.code not in _PLANNED:
        return exit
    words = f"The attempt ended as {exit.code}, and nobody had asked it to. {exit.message}".strip()
    return exit.model_copy(update={"code": EndCode.CRASHED, "message": words})


def _check_shipped(session: Read, run: Run, offsets: dict[str, int]) -> None:
    stored = stored_bytes(session, run.id, run.attempt)
    for file, size in sorted(offsets.items()):
        have = stored.get(file, 0)
        if have < size:
            detail = f"{file} has {size} bytes and is stored up to {have}: send the rest, then report again."
            raise Conflict("file_short", detail, extensions={"file": file, "offset": have})


def _fails_as(session: Read, run: Run, code: EndCode) -> EndCode | None:
    """Reason for which the run fails by this end; None: it is tried again."""
    kind = end_class(code)
    if kind is EndClass.USER:
        return code
    if kind in RETRIES and _earlier_ends(session, run, kind) + 1 >= RETRIES[kind]:
        return FAILS_AS.get(kind, code)
    most = RunSpec.model_validate(run.spec).resources.max_attempts
    if most is not None and run.attempt - _uncounted_attempts(session, run) >= most:
        return EndCode.TOO_MANY_ATTEMPTS
    return None


def _uncounted_attempts(session: Read, run: Run) -> int:
    """Earlier attempts that a person paused, or whose layout was put back."""
    uncounted = select(func.count()).where(
        Attempt.run_id == run.id,
        Attempt.number < run.attempt,
        or_(Attempt.reason.in_(_PLANNED), Attempt.number.in_(_put_back(run))),
    )
    return session.scalar(uncounted) or 0


def _put_back(run: Run) -> Select[int]:
    """Attempts that ended by their layout."""
    return select(RunEvent.attempt).where(RunEvent.run_id == run.id, RunEvent.type == PUT_BACK_EVENT)


def _last_put_back(session: Read, run: Run) -> int:
    """The attempt that ended last by its layout, whose ends before speak of that layout too; 0 without one."""
    return session.scalar(_put_back(run).order_by(RunEvent.attempt.desc()).limit(1)) or 0


def _earlier_ends(session: Read, run: Run, kind: EndClass | None) -> int:
    """Earlier attempts without progress since, that ended so (None: early at all, unasked)."""
    codes = set(EndCode) - _PLANNED if kind is None else {code for code in EndCode if end_class(code) is kind}
    damage = {EndCode.CHECKPOINT_INVALID}
    saved, still_good = last_saving_attempt(session, run.id)
    ends = select(func.count()).where(
        Attempt.run_id == run.id,
        Attempt.number < run.attempt,
        Attempt.number > _last_put_back(session, run),
        or_(
            and_(Attempt.number >= saved, Attempt.reason.in_(codes - damage)),
            and_(Attempt.number >= still_good, Attempt.reason.in_(codes & damage)),
        ),
    )
    return session.scalar(ends) or 0


def _retry_at(session: Read, run: Run, timers: Timers) -> datetime:
    doublings = min(_earlier_ends(session, run, None), 30)
    wait = min(timers.backoff_seconds * 2**doublings, timers.backoff_limit_seconds)
    return now() + timedelta(seconds=wait)
