"""Two checks that prevent two trainers of one run, each tested on the real code and on an injected fault.

A check that passes on both is useless. The faults are mistakes of a developer who is new to the protocol.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, update

from tests.backend.scripted_agent import Scene
from trainwright.contracts.run_state import FINAL, RunState
from trainwright_backend.attempts import attempt_end, claims
from trainwright_backend.core.db import Write
from trainwright_backend.runs.tables import Placement, Run

pytestmark = pytest.mark.both_databases


class TwoClaimsError(Exception):
    """The condition to detect: two claims were granted. Code that only crashes does not raise it."""


def check_a_claim_is_exclusive(scene: Scene) -> None:
    """One of several concurrent claims, each with its own id, wins."""
    run_id = scene.submit()
    scene.control.sweep()
    with ThreadPoolExecutor(4) as pool:
        responses = list(pool.map(lambda _: scene.agent.try_claim(run_id, uuid4().hex), range(4)))
    codes = sorted(response.status_code for response in responses)
    if codes.count(200) > 1:
        raise TwoClaimsError(codes)
    assert codes == [200, 409, 409, 409]
    assert scene.show(run_id)["attempt"] == 1


def check_an_old_fence_ends_nothing(scene: Scene) -> None:
    """A node's report of the end of a run that continued elsewhere is refused."""
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


def test_a_claim_without_compare_and_set_is_detected(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_guard_of_claims(monkeypatch)
    with pytest.raises(TwoClaimsError):
        check_a_claim_is_exclusive(scene)
    repair_invariants(scene)


def test_a_placement_is_claimed_once(scene: Scene) -> None:
    scene.submit()
    scene.control.sweep()
    with scene.database.write() as session:
        placement = session.scalars(select(Placement).where(Placement.claim_id.is_(None))).one()
        assert claims.take_placement(session, placement, "c" * 32, 1)
        assert not claims.take_placement(session, placement, "d" * 32, 2)
        assert (placement.claim_id, placement.fence) == ("c" * 32, 1)
        session.rollback()


def test_an_end_without_fence_check_is_detected(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_end, "check_placement", lambda *_: None)
    with pytest.raises(AssertionError):
        check_an_old_fence_ends_nothing(scene)


def test_an_unseen_renewal_keeps_its_lease(scene: Scene) -> None:
    work = scene.running()
    with scene.database.read() as session:
        seen_id, seen_renewal = session.execute(select(Placement.id, Placement.renewal)).one()
    work.order("running")
    with scene.database.write() as session:
        assert not attempt_end.expire_lease(
            session, seen_id, seen_renewal, scene.site.app.state.settings.timers
        )
    assert scene.state(work.run_id) == "running"


def drop_guard_of_claims(patch: pytest.MonkeyPatch) -> None:
    """Let every claim of a placed run succeed."""
    patch.setattr(claims, "unclaimed_placement", any_placement)
    patch.setattr(claims, "take_placement", claim_unconditionally)
    patch.setattr(claims, "move", move_without_guard)
    patch.setattr(claims, "start_attempt", lambda session, run, *_: run)


def any_placement(session: Write, run: Run, node_id: UUID) -> Placement | None:
    return session.scalars(select(Placement).where(Placement.run_id == run.id)).first()


def claim_unconditionally(session: Write, placement: Placement, claim_id: str, fence: int) -> bool:
    session.execute(
        update(Placement).where(Placement.id == placement.id).values(claim_id=claim_id, fence=fence)
    )
    session.refresh(placement)
    return True


def move_without_guard(session: Write, run: Run, state: RunState, message: str, **_: Any) -> Run:
    run.state, run.fence = state, run.fence + 1
    return run


def repair_invariants(scene: Scene) -> None:
    """The fault broke invariants. Remove its traces, or the scene's own check would fail."""
    with scene.database.write() as session:
        session.execute(update(Run).where(Run.state.not_in(FINAL)).values(state=RunState.QUEUED, fence=0))
