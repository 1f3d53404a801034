"""The control loop as a thread: one leads, and a commit that matters wakes it."""

import time

from fastapi.testclient import TestClient

from tests.backend.scripted_agent import Scene
from trainwright_backend.control import ControlLoop, Leader
from trainwright_backend.main import create_app


def test_one_loop_leads_and_the_next_takes_over(scene: Scene) -> None:
    state = scene.site.app.state
    first, second = Leader(state.database, state.settings), Leader(state.database, state.settings)
    assert (first.leads(), second.leads(), first.leads()) == (True, False, True)
    first.resign()
    assert second.leads()
    assert not first.leads()
    second.resign()


def test_a_commit_that_matters_wakes_the_loop(scene: Scene) -> None:
    slow = scene.site.app.state.settings.timers.model_copy(update={"sweep_seconds": 1_000.0})
    settings = scene.site.app.state.settings.model_copy(update={"control_loop": True, "timers": slow})
    application = create_app(settings)
    with TestClient(application, base_url="http://localhost") as client:
        client.headers.update(scene.site.admin.headers)
        answer = client.post(scene.runs, json=scene.spec())
        assert answer.status_code == 201
        deadline = time.monotonic() + 20
        while not scene.agent.heartbeat():
            assert time.monotonic() < deadline, "the run is placed without waiting for a sweep"
            time.sleep(0.02)


def test_a_loop_that_never_led_stops(scene: Scene) -> None:
    state = scene.site.app.state
    other = Leader(state.database, state.settings)
    assert other.leads()
    loop = ControlLoop(state.database, state.settings, state.store)
    loop.start()
    run_id = scene.submit()
    loop.stop()
    assert scene.agent.heartbeat() == []
    assert scene.state(run_id) == "queued"
    other.resign()
