"""The one gate through which the state of a run changes.

`move` is one guarded UPDATE (by the state and the fence that were read), exactly one row, in the same transaction as
its event, the quota ledger's row and, when the new state has no trainer, the deletion of slots and of placements that
nobody claimed. `stop` begins every early end, with a verdict; `settle` finishes it once all claimed placements of the
run's fence are closed. Whoever calls these has read the run by `lock_run` in the same transaction.

A run's row equals the fold of its events: `fold` is the definition, and a test compares.
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
    HOLDS_QUOTA,
    MOVES,
    SETTLES_TO,
    WITHOUT_TRAINER,
    RunState,
    Verdict,
)
from trainwright_backend.core.db import Write, now, storable
from trainwright_backend.core.errors import Conflict
from trainwright_backend.runs.charging import charge, mark_after
from trainwright_backend.runs.tables import Attempt, Placement, PlacementSlot, Run, RunEvent
from trainwright_backend.runs.wake import wake_control, wake_run
from trainwright_backend.teams.service import release

STATE_EVENT = "state"


@dataclass(frozen=True)
class Folded:
    """What the events of a run say its row is."""

    state: RunState
    verdict: Verdict | None
    reason: EndCode | None
    fence: int
    attempt: int
    message: str


def fold(events: Iterable[RunEvent]) -> Folded | None:
    """The row that ``events`` (all of one run, in order) add up to; None for no events."""
    row = None
    for event in events:
        if event.type == STATE_EVENT:
            assert event.state is not None
            row = Folded(event.state, event.verdict, event.reason, event.fence, event.attempt, event.message)
    return row


def lock_run(session: Write, run_id: UUID) -> Run | None:
    """The run as it is now, held against other writers until the transaction ends."""
    return session.get(Run, run_id, with_for_update=True, populate_existing=True)


def begin(session: Write, run: Run) -> None:
    """Add a new run, which nobody has seen yet, with its first event."""
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

    A move to `leased` counts the fence up, the one to `starting` the attempt. A move out of the states that hold
    quota gives the slots back.

    Raises:
        Conflict: the move does not exist, or somebody else moved the run meanwhile.
    """
    if state not in MOVES[run.state]:
        raise Conflict("run_state", f"A run that is {run.state} cannot become {state}.")
    before = run.state
    _write(session, run, state, message, verdict=verdict, reason=reason, retry_at=retry_at)
    if state in WITHOUT_TRAINER:
        _leave_nodes(session, run)
    if before in HOLDS_QUOTA and state not in HOLDS_QUOTA:
        release(session, run.team_id, run.device, run.slots, run.id)
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
    """End the run's attempt early: its nodes are told to stop it, and then it becomes what ``verdict`` says.

    ``attempt_reason`` is what ended the attempt where that is not the run's ``reason``: a run fails as `poison` by an
    attempt whose supervisor was lost. On a run that is stopping already, a stronger verdict replaces a weaker one; otherwise
    nothing changes. What ended the attempt stays when a pause comes after it.
    """
    if run.state is not RunState.STOPPING:
        move(session, run, RunState.STOPPING, message, verdict=verdict, reason=reason, retry_at=retry_at)
        blame(session, run, attempt_reason or reason)
    elif run.verdict is None or verdict.strength > run.verdict.strength:
        _write(session, run, RunState.STOPPING, message, verdict=verdict, reason=reason, retry_at=retry_at)
        if verdict is not Verdict.PAUSE:
            blame(session, run, attempt_reason or reason)
    return settle(session, run)


def settle(session: Write, run: Run, *, finished: str = "") -> Run:
    """Move a stopping run by its verdict, if all claimed placements of its fence are closed.

    ``finished`` says in words what the attempt did that ends now, if nothing is left to do: then the run is not paused.
    """
    if run.state is not RunState.STOPPING or _has_open_claim(session, run):
        return run
    assert run.verdict is not None, "a stopping run has a verdict"
    if finished and run.verdict is Verdict.PAUSE:
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
    """Record something that happened and changes no state."""
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
    wake_run(session, run.id)


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
    """The guarded UPDATE and its event; where it frees the slots, their time is counted."""
    counted_until = run.charged_until
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
        "charged_until": mark_after(state, counted_until),
        "event_sequence": Run.event_sequence + 1,
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
        raise Conflict("run_changed", "The run changed at the same moment. Look again and repeat.")
    session.refresh(run)
    if run.charged_until is None:
        charge(session, run, counted_until, now())
    session.add(_state_event(run, written[0].event_sequence))
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
    """Nothing of the run is alive: its slots are free, nobody may claim it, its attempt is over."""
    placements = select(Placement.id).where(Placement.run_id == run.id)
    session.execute(delete(PlacementSlot).where(PlacementSlot.placement_id.in_(placements)))
    session.execute(delete(Placement).where(Placement.run_id == run.id, Placement.claim_id.is_(None)))
    open_attempt = update(Attempt).where(Attempt.run_id == run.id, Attempt.ended.is_(None))
    session.execute(open_attempt.values(ended=now()))
    if run.state is RunState.SUCCEEDED:
        blame(session, run, EndCode.FINISHED)


def blame(session: Write, run: Run, reason: EndCode) -> None:
    """Note why the run's newest attempt ended."""
    current = update(Attempt).where(Attempt.run_id == run.id, Attempt.fence == run.fence)
    session.execute(current.values(reason=reason))


def _has_open_claim(session: Write, run: Run) -> bool:
    claimed = exists().where(
        Placement.run_id == run.id, Placement.fence == run.fence, Placement.closed.is_(None)
    )
    return bool(session.scalar(select(claimed)))


def _announce(session: Write, run_id: UUID) -> None:
    wake_run(session, run_id)
    wake_control(session)
