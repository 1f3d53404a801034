"""Row F15: a run is cancelled in any state while a request arrives that ends or advances it. It ends once, and keeps no slot."""

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from httpx import Response
from sqlalchemy import select

from tests.backend.attempts.test_lifecycle import (
    in_completing,
    in_placed,
    in_queued,
    in_retry_wait,
    in_running,
    in_starting,
)
from tests.backend.runs.test_pause import pause, resume
from tests.backend.scripted_agent import Agent, Scene, Work
from tests.faults.rows import FaultRow
from trainwright.contracts.agent_protocol import Claim
from trainwright.contracts.run_state import FINAL
from trainwright_backend.core.ids import parse_id
from trainwright_backend.runs import transitions
from trainwright_backend.runs.tables import PlacementSlot, RunEvent
from trainwright_backend.runs.transitions import lock_run, release_slots

SEED = 15
LATEST_SECONDS = 0.03
"""The later of the two requests starts within this time, which is about that of a request."""


@dataclass
class Race:
    """A run, and what happens to it while it is cancelled."""

    run_id: str
    rival: Callable[[], Response | None]
    works: list[Work] = field(default_factory=list)
    """Its claims, which must end before it has left its nodes."""

    def claim(self, agent: Agent) -> Response:
        response = agent.try_claim(self.run_id)
        if response.status_code == 200:
            self.works.append(Work(agent, self.run_id, Claim.model_validate(response.json())))
        return response


def queued(scene: Scene, pair: list[Agent]) -> Race:
    run_id, _ = in_queued(scene)
    return Race(run_id, scene.control.sweep)


def placed(scene: Scene, pair: list[Agent]) -> Race:
    run_id, _ = in_placed(scene)
    race = Race(run_id, lambda: race.claim(scene.agent))
    return race


def leased(scene: Scene, pair: list[Agent]) -> Race:
    run_id = scene.submit(resources={"device": "cuda", "nodes": 2, "slots_per_node": 1})
    scene.control.sweep()
    race = Race(run_id, lambda: race.claim(pair[1]))
    assert race.claim(pair[0]).status_code == 200
    assert scene.state(run_id) == "leased"
    return race


def starting(scene: Scene, pair: list[Agent]) -> Race:
    run_id, work = in_starting(scene)
    assert work is not None
    return Race(run_id, lambda: work.end("crashed"), [work])


def running(scene: Scene, pair: list[Agent]) -> Race:
    run_id, work = in_running(scene)
    assert work is not None
    return Race(run_id, lambda: work.end("crashed"), [work])


def completing(scene: Scene, pair: list[Agent]) -> Race:
    run_id, work = in_completing(scene)
    assert work is not None
    work.save(10)
    work.save(10, "export")
    return Race(run_id, lambda: work.end("finished", step=10), [work])


def stopping(scene: Scene, pair: list[Agent]) -> Race:
    run_id, work = in_running(scene)
    assert work is not None
    assert pause(scene, run_id).status_code == 202
    return Race(run_id, lambda: work.end("saved", step=3), [work])


def retry_wait(scene: Scene, pair: list[Agent]) -> Race:
    run_id, _ = in_retry_wait(scene)
    scene.end_backoff(run_id)
    return Race(run_id, scene.control.sweep)


def paused(scene: Scene, pair: list[Agent]) -> Race:
    run_id, _ = in_queued(scene)
    assert pause(scene, run_id).status_code == 202
    return Race(run_id, lambda: resume(scene, run_id))


ARRANGE: list[Callable[[Scene, list[Agent]], Race]] = [
    queued,
    placed,
    leased,
    starting,
    running,
    completing,
    stopping,
    retry_wait,
    paused,
]


@pytest.fixture
def pair(scene: Scene) -> list[Agent]:
    """Two nodes with a GPU each, for a run on both."""
    return [
        Agent.join(scene.site, name, cpu_slots=0, gpus=1, reported={"peer_address": f"10.0.0.{n}"})
        for n, name in enumerate(("node-b", "node-c"), 1)
    ]


@pytest.mark.both_databases
@pytest.mark.fault_row(name="F15", trials=500, long=500)
def test_a_run_that_is_cancelled_while_it_moves_ends_once_and_keeps_no_slot(
    row: FaultRow, scene: Scene, pair: list[Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    choose = random.Random(SEED)
    ends = set()
    for number in range(row.count):
        arrange = ARRANGE[number % len(ARRANGE)]
        with row.trial(f"{arrange.__name__}, trial {number}"):
            race = arrange(scene, pair)
            ends.add((arrange.__name__, check_it_ends_once(scene, pair, race, choose)))
            assert scene.site.admin.delete(f"{scene.runs}/{race.run_id}").status_code == 200
    race = placed(scene, pair)
    with row.control(), monkeypatch.context() as patch:
        patch.setattr(transitions, "release_slots", lambda session, run: None)
        check_it_ends_once(scene, pair, race, choose)
    with scene.database.write() as session:
        run = lock_run(session, parse_id("run", race.run_id))
        assert run is not None
        release_slots(session, run)
    assert {state for name, state in ends if name == "completing"} == {"cancelled", "succeeded"}, (
        "either request came first at times"
    )


def check_it_ends_once(scene: Scene, pair: list[Agent], race: Race, choose: random.Random) -> str:
    """Cancel the run during the other request; returns its final state."""
    waits = [0.0, choose.uniform(0, LATEST_SECONDS)]
    choose.shuffle(waits)
    with ThreadPoolExecutor(2) as pool:
        cancelling = pool.submit(after, waits[0], lambda: scene.cancel(race.run_id))
        moving = pool.submit(after, waits[1], race.rival)
        cancelled, moved = cancelling.result(), moving.result()
    assert cancelled is not None and cancelled.status_code in (202, 409), "cancelled, or it has ended"
    assert moved is None or moved.status_code in (200, 202, 409), moved.text
    for work in race.works:
        stopped = work.end("stopped")
        assert stopped.status_code == 200 or stopped.json()["code"] == "stale_fence", stopped.text
    scene.control.sweep()
    state = scene.state(race.run_id)
    assert state == ("cancelled" if cancelled.status_code == 202 else "succeeded")
    again = scene.cancel(race.run_id).json()
    assert again["state"] == "cancelled" if state == "cancelled" else again["code"] == "run_is_final"
    with scene.database.read() as session:
        states = session.scalars(
            select(RunEvent.state)
            .where(RunEvent.run_id == parse_id("run", race.run_id), RunEvent.state.is_not(None))
            .order_by(RunEvent.sequence)
        ).all()
        assert [seen for seen in states if seen in FINAL] == [state] == [states[-1]], (
            "one end, the last state"
        )
        assert session.scalars(select(PlacementSlot)).all() == [], "no slot is occupied"
    assert [agent.heartbeat() for agent in (scene.agent, *pair)] == [[], [], []]
    scene.check_invariants()
    return state


def after(seconds: float, request: Callable[[], Response | None]) -> Response | None:
    time.sleep(seconds)
    return request()
