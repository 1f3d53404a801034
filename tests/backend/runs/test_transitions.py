"""`move`, `stop` and `settle` under any sequence of calls: the row is the fold of its events, and final is final."""

from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from tests.backend.scripted_agent import Scene
from trainwright.contracts.agent_protocol import Timers
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import FINAL, MOVES, WITHOUT_TRAINER, RunState, Verdict
from trainwright_backend.core.db import Write, now
from trainwright_backend.core.errors import Conflict
from trainwright_backend.core.ids import new_id, parse_id
from trainwright_backend.nodes.tables import Node
from trainwright_backend.runs.tables import Placement, PlacementEnd, Run
from trainwright_backend.runs.transitions import lock_run, move, settle, stop
from trainwright_backend.scheduling.placement import place

CALLS = st.lists(
    st.one_of(
        st.sampled_from(list(RunState)),
        st.sampled_from(list(Verdict)),
        st.sampled_from(["place", "claim", "close"]),
    ),
    max_size=14,
)
ADVANCE = [RunState.LEASED, RunState.STARTING, RunState.RUNNING]


@given(calls=CALLS, advanced=st.booleans())
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_calls_keep_the_row_equal_to_the_fold_of_its_events(
    scene: Scene, calls: list[RunState | Verdict | str], advanced: bool
) -> None:
    run_id = parse_id("run", scene.submit())
    for call in [*(ADVANCE if advanced else []), *calls]:
        with scene.database.write() as session:
            run = lock_run(session, run_id)
            assert run is not None
            apply(session, run, call)
    scene.check_invariants()
    finish(scene, run_id)
    scene.check_invariants()


def apply(session: Write, run: Run, call: RunState | Verdict | str) -> None:
    """Make one call, and check its guarantees."""
    state, fence, sequence, verdict = run.state, run.fence, run.event_sequence, run.verdict
    if isinstance(call, RunState):
        with_verdict = Verdict.RETRY if call is RunState.STOPPING else None
        allowed = call in MOVES[state]
        try:
            move(session, run, call, "moved", verdict=with_verdict)
        except Conflict:
            assert not allowed
            assert (run.state, run.fence, run.event_sequence) == (state, fence, sequence)
        else:
            assert allowed
            assert run.fence == fence + (call is RunState.LEASED)
    elif isinstance(call, Verdict):
        if RunState.STOPPING in MOVES[state] or state is RunState.STOPPING:
            stop(session, run, call, EndCode.CRASHED, "stopped")
            stronger = verdict is None or call.strength > verdict.strength
            assert run.verdict in (None, call if stronger else verdict)
    elif call == "place":
        node_id = session.scalars(select(Node.id)).one()
        place(session, run.id, [node_id], Timers(heartbeat_seconds=1_000))
    elif call == "claim" and state not in FINAL:
        session.add(claimed_placement(run))
        session.flush()
    elif call == "close":
        session.execute(update(Placement).where(Placement.run_id == run.id).values(closed=PlacementEnd.ENDED))
        settle(session, run)
        assert run.state is not RunState.STOPPING, "it occupies nothing anymore"
    assert run.fence >= fence
    assert state not in FINAL or run.state is state


def finish(scene: Scene, run_id: UUID) -> None:
    """End the run, so that the quota is free for the next example."""
    with scene.database.write() as session:
        run = lock_run(session, run_id)
        assert run is not None
        session.execute(update(Placement).where(Placement.run_id == run_id).values(closed=PlacementEnd.ENDED))
        if run.state in WITHOUT_TRAINER - FINAL:
            move(session, run, RunState.CANCELLED, "the end")
        elif run.state not in FINAL:
            stop(session, run, Verdict.CANCEL, EndCode.CANCELLED, "the end")
        assert run.state in FINAL


def claimed_placement(run: Run) -> Placement:
    """A claimed placement of the run's fence, on a node that was removed since."""
    return Placement(
        id=new_id(),
        run_id=run.id,
        node_name="gone",
        device=run.device,
        slots=[],
        placed=now(),
        claim_id=new_id().hex,
        fence=run.fence,
        downloads=[],
        renewal=0,
    )


@pytest.mark.both_databases
def test_a_move_of_a_stale_run_is_refused(scene: Scene) -> None:
    run_id = parse_id("run", scene.submit())
    with scene.database.read() as session:
        stale = session.scalars(select(Run).where(Run.id == run_id)).one()
        session.expunge(stale)
    with scene.database.write() as session:
        run = lock_run(session, run_id)
        assert run is not None
        move(session, run, RunState.LEASED, "claimed")
    with scene.database.write() as session:
        try:
            move(session, stale, RunState.CANCELLED, "too late")
        except Conflict as error:
            assert error.code == "run_changed"
        else:
            raise AssertionError("the guard did not refuse it")
    scene.check_invariants()
