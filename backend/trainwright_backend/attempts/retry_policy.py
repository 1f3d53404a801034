"""Whether a run is retried after an attempt's early end, and when.

Ends are counted by class over the attempts since the newest checkpoint, so progress resets the count (`RETRIES`). If a
checkpoint turns out to be damaged, the ends before it still do not count. Ends by damage itself are counted since the
newest checkpoint that is still valid. An attempt whose layout was rolled back (`layout_rollback`) is not counted.
"""

from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select

from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.end_codes import RETRIES, EndClass, EndCode, end_class
from trainwright.contracts.job_spec import Outcome
from trainwright.contracts.run_state import RunState
from trainwright_backend.checkpoints.resume import resume_point
from trainwright_backend.checkpoints.service import last_saving_attempt
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.runs.layout import ROLLBACK_EVENT
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Attempt, Run, RunEvent
from trainwright_backend.runs.transitions import lock_run, move

FAILS_AS = {EndClass.LOST: EndCode.POISON, EndClass.LEASE_EXPIRED: EndCode.UNREACHABLE}
"""Reason of a run that fails after too many ends of a class; runs fail with the last end's code for other classes."""

PLANNED_ENDS = frozenset(code for code in EndCode if end_class(code) is EndClass.PLANNED)


def due_for_retry() -> Select[UUID]:
    """The runs whose back-off is over."""
    return select(Run.id).where(Run.state == RunState.RETRY_WAIT, Run.retry_at <= now())


def requeue(session: Write, run_id: UUID) -> None:
    """Queue a run whose back-off is over."""
    run = lock_run(session, run_id)
    if run is not None and run.state is RunState.RETRY_WAIT:
        move(session, run, RunState.QUEUED, "retrying")


def reason_not_to_retry(session: Read, run: Run, exit: Outcome) -> EndCode | None:
    """Why the run fails after this end; None if it is retried."""
    code, kind = exit.code, end_class(exit.code)
    if kind is EndClass.USER:
        return code
    if kind is EndClass.DIVERGED and (exit.sequences_read is None or resume_point(session, run) is None):
        return code  # the next attempt would read the same data again, or start over
    if kind in RETRIES and _earlier_ends(session, run, kind) + 1 >= RETRIES[kind]:
        return FAILS_AS.get(kind, code)
    most = stored_spec(run).resources.max_attempts
    if most is not None and run.attempt - _uncounted_attempts(session, run) >= most:
        return EndCode.TOO_MANY_ATTEMPTS
    return None


def _uncounted_attempts(session: Read, run: Run) -> int:
    """Earlier attempts that a person paused, or whose layout was rolled back."""
    uncounted = select(func.count()).where(
        Attempt.run_id == run.id,
        Attempt.number < run.attempt,
        or_(Attempt.reason.in_(PLANNED_ENDS), Attempt.number.in_(_rolled_back(run))),
    )
    return session.scalar(uncounted) or 0


def _rolled_back(run: Run) -> Select[int]:
    """Attempts that their layout may have ended."""
    return select(RunEvent.attempt).where(RunEvent.run_id == run.id, RunEvent.type == ROLLBACK_EVENT)


def _last_rollback(session: Read, run: Run) -> int:
    """The last attempt whose layout was rolled back; ends before it may be due to that layout too. 0 if there
    is none."""
    return session.scalar(_rolled_back(run).order_by(RunEvent.attempt.desc()).limit(1)) or 0


def _earlier_ends(session: Read, run: Run, kind: EndClass | None) -> int:
    """Earlier attempts that ended in this way (None: with any unplanned end), without progress since."""
    codes = (
        set(EndCode) - PLANNED_ENDS if kind is None else {code for code in EndCode if end_class(code) is kind}
    )
    damage = {EndCode.CHECKPOINT_INVALID}
    saved, still_good = last_saving_attempt(session, run.id)
    ends = select(func.count()).where(
        Attempt.run_id == run.id,
        Attempt.number < run.attempt,
        Attempt.number > _last_rollback(session, run),
        or_(
            and_(Attempt.number >= saved, Attempt.reason.in_(codes - damage)),
            and_(Attempt.number >= still_good, Attempt.reason.in_(codes & damage)),
        ),
    )
    return session.scalar(ends) or 0


def retry_at(session: Read, run: Run, timers: Timers) -> datetime:
    doublings = min(_earlier_ends(session, run, None), 30)
    wait = min(timers.backoff_seconds * 2**doublings, timers.backoff_limit_seconds)
    return now() + timedelta(seconds=wait)
