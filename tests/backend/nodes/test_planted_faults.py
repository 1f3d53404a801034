"""Two checks that guard against two trainers on one run, each tried on the real code and on a planted fault.

A check that passes on both is no check. The faults are what somebody could write who did not know the protocol.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, update

from tests.backend.scripted_agent import Scene
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Write
from trainwright_backend.nodes import claims, ends
from trainwright_backend.runs.tables import Placement, Run


class TwoClaimsError(Exception):
    """What the check is for: two claims were granted. A planted run that only crashes does not raise it."""


def check_a_claim_is_exclusive(scene: Scene) -> None:
    """Of claims at once, each with its own id, one wins."""
    run_id = scene.submit()
    scene.control.sweep()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: scene.agent.try_claim(run_id, uuid4().hex), range(4)))
    codes = sorted(answer.status_code for answer in answers)
    if codes.count(200) > 1:
        raise TwoClaimsError(codes)
    assert codes == [200, 409, 409, 409]
    assert scene.show(run_id)["attempt"] == 1


def check_an_old_fence_ends_nothing(scene: Scene) -> None:
    """The end that a node reports for a run that went on elsewhere is refused."""
    zombie = scene.start()
    scene.control.let_pass(7)
    work = scene.again(zombie.run_id)
    assert zombie.end("crashed", offsets={}).json().get("code") == "stale_fence"
    assert scene.state(work.run_id) == "starting"
    assert work.order("starting") == "go"


def test_a_claim_is_exclusive(scene: Scene) -> None:
    check_a_claim_is_exclusive(scene)


def test_an_old_fence_ends_nothing(scene: Scene) -> None:
    check_an_old_fence_ends_nothing(scene)


def test_a_claim_without_compare_and_set_is_caught(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_free_seat", any_seat)
    monkeypatch.setattr(claims, "take_seat", take_whatever_it_is)
    monkeypatch.setattr(claims, "move", move_without_guard)
    monkeypatch.setattr(claims, "start_attempt", lambda session, run, *_: run)
    with pytest.raises(TwoClaimsError):
        check_a_claim_is_exclusive(scene)
    bring_home(scene)


def test_a_seat_is_taken_once(scene: Scene) -> None:
    scene.submit()
    scene.control.sweep()
    with scene.database.write() as session:
        seat = session.scalars(select(Placement).where(Placement.claim_id.is_(None))).one()
        assert claims.take_seat(session, seat, "c" * 32, 1)
        assert not claims.take_seat(session, seat, "d" * 32, 2)
        assert (seat.claim_id, seat.fence) == ("c" * 32, 1)
        session.rollback()


def test_a_finish_without_fence_check_is_caught(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "check_seat", lambda *_: None)
    with pytest.raises(AssertionError):
        check_an_old_fence_ends_nothing(scene)


def test_a_renewal_that_was_overlooked_saves_its_lease(scene: Scene) -> None:
    work = scene.running()
    with scene.database.read() as session:
        seen_id, seen_renewal = session.execute(select(Placement.id, Placement.renewal)).one()
    work.order("running")
    with scene.database.write() as session:
        assert not ends.lapse(session, seen_id, seen_renewal, scene.site.app.state.settings.timers)
    assert scene.state(work.run_id) == "running"


def any_seat(session: Write, run: Run, node_id: UUID) -> Placement | None:
    return session.scalars(select(Placement).where(Placement.run_id == run.id)).first()


def take_whatever_it_is(session: Write, seat: Placement, claim_id: str, fence: int) -> bool:
    session.execute(update(Placement).where(Placement.id == seat.id).values(claim_id=claim_id, fence=fence))
    session.refresh(seat)
    return True


def move_without_guard(session: Write, run: Run, state: RunState, message: str, **_: Any) -> Run:
    run.state, run.fence = state, run.fence + 1
    return run


def bring_home(scene: Scene) -> None:
    """The fault broke invariants: remove its traces, or the scene's own check would see them."""
    with scene.database.write() as session:
        session.execute(update(Run).values(state=RunState.QUEUED, fence=0))
