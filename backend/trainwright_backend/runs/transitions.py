"""Changing the state of a run. No other module does.

`move` is one UPDATE of exactly one row, guarded by the state and the fence that were read. The same transaction
writes its event and, if the new state has no trainer, frees the run's slots, with their quota, and deletes its
unclaimed placements. `stop` starts every early end, with a verdict; `settle` completes it once all claimed
placements of the run's fence are closed. Callers have read the run by `lock_run` in the same transaction.

A run's row equals the fold of its events: `fold` defines this, and a test compares them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, exists, select, update

from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import (
    FINAL,
    MOVES,
    SAVING_VERDICTS,
    SETTLES_TO,
    WITHOUT_TRAINER,
    RunState,
    Verdict,
)
from trainwright_backend.core.counters import ATTEMPTS_ENDED, ATTEMPTS_STARTED, RUNS_ENDED
from trainwright_backend.core.db import Read, Write, now, storable
from trainwright_backend.core.errors import Conflict
from trainwright_backend.runs.end_messages import queue_end_messages
from trainwright_backend.runs.metering import add_metered_time, metered_until_after
from trainwright_backend.runs.notify import notify_control, notify_run
from trainwright_backend.runs.tables import Attempt, Placement, PlacementSlot, Run, RunEvent
from trainwright_backend.teams.slot_quota import release

STATE_EVENT = "state"


@dataclass(frozen=True)
class ReplayedRun:
    """The fields of a run's row that its events determine."""

    state: RunState
    verdict: Verdict | None
    reason: EndCode | None
    fence: int
    attempt: int
    message: str


def fold(events: Iterable[RunEvent]) -> ReplayedRun | None:
    """The row that results from ``events`` (all events of one run, in order); None without events."""
    row = None
    for event in events:
        if event.type == STATE_EVENT:
            assert event.state is not None
            row = ReplayedRun(
                event.state, event.verdict, event.reason, event.fence, event.attempt, event.message
            )
    return row


def lock_run(session: Write, run_id: UUID) -> Run | None:
    """The current run, locked against other writers until the transaction ends."""
    return session.get(Run, run_id, with_for_update=True, populate_existing=True)


def add_run(session: Write, run: Run) -> None:
    """Add a new run with its first event."""
    session.add(run)
    session.flush()
    session.add(_state_event(run, run.event_sequence))
    _announce(session, run.id)


def move(
    session: Write,
    run: Run,
    state: RunState,
    message: str,
    *,
    verdict: Verdict | None = None,
    reason: EndCode | None = None,
    retry_at: datetime | None = None,
) -> Run:
    """Change the state of ``run``.

    A transition to `leased` increments the fence, one to `starting` the attempt. One to a state without a trainer
    frees the slots.

    Raises:
        Conflict: there is no such transition, or the run was changed concurrently.
    """
    if state not in MOVES[run.state]:
        raise Conflict("run_state", f"A run that is {run.state} cannot become {state}.")
    _write(session, run, state, message, verdict=verdict, reason=reason, retry_at=retry_at)
    if state in WITHOUT_TRAINER:
        _leave_nodes(session, run)
    return run


def stop(
    session: Write,
    run: Run,
    verdict: Verdict,
    reason: EndCode,
    message: str,
    *,
    attempt_reason: EndCode | None = None,
    retry_at: datetime | None = None,
) -> Run:
    """End the run's attempt early: its nodes are ordered to stop it, and then the run takes the state of ``verdict``.

    ``attempt_reason`` is the reason for the attempt's end if it differs from the run's ``reason``: a run fails
    as `poison` by an attempt whose supervisor was lost. If the run is already stopping, a stronger verdict replaces a weaker
    one, and the cause of a failure replaces a symptom that another node reported first; otherwise nothing changes. A later
    pause or move does not replace the attempt's reason.
    """
    if run.state is not RunState.STOPPING:
        move(session, run, RunState.STOPPING, message, verdict=verdict, reason=reason, retry_at=retry_at)
        set_attempt_reason(session, run, attempt_reason or reason)
    elif run.verdict is None or verdict.strength > run.verdict.strength or _is_symptom(run, reason):
        _write(session, run, RunState.STOPPING, message, verdict=verdict, reason=reason, retry_at=retry_at)
        if verdict not in SAVING_VERDICTS:
            set_attempt_reason(session, run, attempt_reason or reason)
    return settle(session, run)


def _is_symptom(run: Run, cause: EndCode) -> bool:
    """Whether the reason for which the run stops may be a symptom of ``cause`` on another of its nodes."""
    return run.reason is EndCode.RANK_LOST or (
        run.verdict is Verdict.RETRY and run.reason is EndCode.CRASHED and cause is EndCode.DIVERGED
    )


def settle(session: Write, run: Run, *, finished: str = "") -> Run:
    """Move a stopping run by its verdict, if all claimed placements of its fence are closed.

    ``finished`` describes what the ending attempt completed, if nothing is left to do: then the run succeeds
    instead of pausing or moving.
    """
    if run.state is not RunState.STOPPING or has_open_claim(session, run):
        return run
    assert run.verdict is not None, "a stopping run has a verdict"
    if finished and run.verdict in SAVING_VERDICTS:
        return move(session, run, RunState.SUCCEEDED, finished, reason=EndCode.FINISHED)
    return move(session, run, SETTLES_TO[run.verdict], run.message, reason=run.reason, retry_at=run.retry_at)


def add_event(
    session: Write,
    run: Run,
    kind: str,
    message: str,
    *,
    step: int | None = None,
    time: datetime | None = None,
) -> None:
    """Record an event that changes no state."""
    statement = update(Run).where(Run.id == run.id).values(event_sequence=Run.event_sequence + 1)
    sequence = session.execute(
        statement.returning(Run.event_sequence).execution_options(synchronize_session=False)
    ).scalar_one()
    session.add(
        RunEvent(
            run_id=run.id,
            sequence=sequence,
            time=time or now(),
            type=storable(kind),
            state=None,
            verdict=None,
            reason=None,
            fence=run.fence,
            attempt=run.attempt,
            step=step,
            message=storable(message),
        )
    )
    notify_run(session, run.id)


def _write(
    session: Write,
    run: Run,
    state: RunState,
    message: str,
    *,
    verdict: Verdict | None,
    reason: EndCode | None,
    retry_at: datetime | None,
) -> None:
    """Execute the guarded UPDATE and add its event; if it frees the slots, record their usage."""
    counted_until = run.metered_until
    values: dict[str, Any] = {
        "state": state,
        "verdict": verdict,
        "reason": reason,
        "message": storable(message),
        "retry_at": retry_at,
        "progress": "",
        "waiting_reason": "",
        "fence": run.fence + (state is RunState.LEASED),
        "attempt": run.attempt + (state is RunState.STARTING),
        "metered_until": metered_until_after(state, counted_until),
        "event_sequence": Run.event_sequence + 1,
        "paused": now() if state is RunState.PAUSED else None,
    }
    if state is RunState.STARTING and run.started is None:
        values["started"] = now()
    if state in FINAL:
        values["ended"] = now()
    guarded = (
        update(Run).where(Run.id == run.id, Run.state == run.state, Run.fence == run.fence).values(**values)
    )
    written = session.execute(
        guarded.returning(Run.event_sequence).execution_options(synchronize_session=False)
    ).all()
    if len(written) != 1:
        raise Conflict("run_changed", "The run was changed at the same time. Reload it and try again.")
    session.refresh(run)
    if run.metered_until is None:
        add_metered_time(session, run, counted_until, now())
    session.add(_state_event(run, written[0].event_sequence))
    if run.state is RunState.STARTING:
        session.after_commit(ATTEMPTS_STARTED.inc)
    if run.state in FINAL:
        session.after_commit(RUNS_ENDED.labels(run.state, run.reason or EndCode.UNKNOWN).inc)
    queue_end_messages(session, run)
    _announce(session, run.id)


def _state_event(run: Run, sequence: int) -> RunEvent:
    return RunEvent(
        run_id=run.id,
        sequence=sequence,
        time=now(),
        type=STATE_EVENT,
        state=run.state,
        verdict=run.verdict,
        reason=run.reason,
        fence=run.fence,
        attempt=run.attempt,
        step=None,
        message=run.message,
    )


def _leave_nodes(session: Write, run: Run) -> None:
    """Free the run's slots, withdraw its unclaimed placements and end its attempt: none of its processes is alive."""
    release_slots(session, run)
    if run.state is RunState.SUCCEEDED:
        set_attempt_reason(session, run, EndCode.FINISHED)
    open_attempt = update(Attempt).where(Attempt.run_id == run.id, Attempt.ended.is_(None))
    ended = open_attempt.values(ended=now()).returning(Attempt.reason)
    for code in session.scalars(ended).all():
        session.after_commit(ATTEMPTS_ENDED.labels(code or EndCode.UNKNOWN).inc)


def release_slots(session: Write, run: Run) -> None:
    """Free the run's slots, with their quota, and withdraw its unclaimed placements."""
    placements = select(Placement.id).where(Placement.run_id == run.id)
    freed = session.change(delete(PlacementSlot).where(PlacementSlot.placement_id.in_(placements)))
    session.execute(delete(Placement).where(Placement.run_id == run.id, Placement.claim_id.is_(None)))
    if freed:  # a node that was removed took its slots with it
        release(session, run.team_id, run.device, run.slots, run.id)
    slots_per_node = run.slots // run.nodes
    run.nodes = run.requested_nodes
    run.slots = run.nodes * slots_per_node
    session.flush()


def set_attempt_reason(session: Write, run: Run, reason: EndCode) -> None:
    """Record why the run's newest attempt ended."""
    current = update(Attempt).where(Attempt.run_id == run.id, Attempt.fence == run.fence)
    session.execute(current.values(reason=reason))


def has_open_claim(session: Read, run: Run) -> bool:
    """Whether a node has claimed the run's newest attempt, and its end was not accepted yet."""
    claimed = exists().where(
        Placement.run_id == run.id, Placement.fence == run.fence, Placement.closed.is_(None)
    )
    return bool(session.scalar(select(claimed)))


def _announce(session: Write, run_id: UUID) -> None:
    notify_run(session, run_id)
    notify_control(session)
