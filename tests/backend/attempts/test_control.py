"""The control loop: one leads, relevant commits notify it, and an error with one run does not stop the others."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from tests.backend.scripted_agent import Control, Scene
from trainwright_backend.control.leader import Leader
from trainwright_backend.control.loop import ControlLoop
from trainwright_backend.core import db
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.deletion_queue import QueuedDeletion
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.settings import Settings
from trainwright_backend.main import create_app
from trainwright_backend.runs.tables import Run
from trainwright_backend.scheduling import placement_round


@pytest.mark.both_databases
def test_one_loop_leads_and_the_next_takes_over(scene: Scene) -> None:
    state = scene.site.app.state
    first, second = Leader(state.database, state.settings), Leader(state.database, state.settings)
    assert (first.leads(), second.leads(), first.leads()) == (True, False, True)
    first.resign()
    assert second.leads()
    assert not first.leads()
    second.resign()


@pytest.mark.both_databases
def test_a_relevant_commit_notifies_the_loop(scene: Scene) -> None:
    slow = scene.site.app.state.settings.timers.model_copy(update={"sweep_seconds": 1_000.0})
    settings = scene.site.app.state.settings.model_copy(update={"control_loop": True, "timers": slow})
    application = create_app(settings)
    with TestClient(application, base_url="http://localhost") as client:
        client.headers.update(scene.site.admin.headers)
        response = client.post(scene.runs, json=scene.spec())
        assert response.status_code == 201
        deadline = time.monotonic() + 20
        while not scene.agent.heartbeat():
            assert time.monotonic() < deadline, "the run is placed without waiting for a sweep"
            time.sleep(0.02)


def test_a_follower_does_nothing_until_the_leader_exits(scene: Scene) -> None:
    state = scene.site.app.state
    other = Leader(state.database, state.settings)
    assert other.leads()
    settings = with_short_sweeps(state.settings)
    loop = ControlLoop(state.database, settings, state.store)
    loop.start()
    run_id = scene.submit()
    time.sleep(5 * settings.timers.sweep_seconds)
    assert scene.agent.heartbeat() == []
    assert scene.state(run_id) == "queued"
    other.resign()
    wait_for_a_placement(scene)
    loop.stop()


def test_the_loop_survives_a_round_that_fails_at_its_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = scene.site.app.state
    asked: list[Leader] = []
    real = Leader.leads

    def stumbles_first(leader: Leader) -> bool:
        asked.append(leader)
        if len(asked) == 1:
            raise RuntimeError("a defect")
        return real(leader)

    monkeypatch.setattr(Leader, "leads", stumbles_first)
    loop = ControlLoop(state.database, with_short_sweeps(state.settings), state.store)
    loop.start()
    scene.submit()
    wait_for_a_placement(scene)
    loop.stop()


def test_health_reports_a_stuck_loop(scene: Scene) -> None:
    state = scene.site.app.state
    anonymous = scene.site.anonymous()
    assert anonymous.get("/api/v1/health").json()["control_loop_seconds"] is None, (
        "the application has no loop here"
    )
    clock = [0.0]
    loop = state.control = ControlLoop(
        state.database, with_short_sweeps(state.settings), state.store, lambda: clock[0]
    )
    loop.start()
    try:
        clock[0] = 1_000.0
        scene.submit()
        wait_for_a_placement(scene)
        deadline = time.monotonic() + 20
        while loop.idle_seconds() > 0:
            assert time.monotonic() < deadline, "it comes round"
            time.sleep(0.01)
        response = anonymous.get("/api/v1/health")
        assert (response.status_code, response.json()["control_loop_seconds"]) == (200, 0)
    finally:
        loop.stop()
    clock[0] += 60.0
    assert anonymous.get("/api/v1/health").status_code == 200
    clock[0] += 15.0
    response = anonymous.get("/api/v1/health")
    assert (response.status_code, response.json()["code"]) == (503, "not_ready")
    assert "has not completed a round for 75 s" in response.json()["detail"]
    [problem] = response.json()["errors"]
    assert (problem["field"], problem["value"]) == ("control_loop_seconds", 75.0)
    assert "restart the process" in problem["message"]


def test_a_process_that_cannot_request_the_lock_does_not_lead(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Settings = scene.site.app.state.settings
    monkeypatch.setattr(db, "POOL_SIZE", 1)
    monkeypatch.setattr(db, "BUSY_TIMEOUT_SECONDS", 0.1)
    database = Database(scene.database.url)
    held = [database.engine.connect(), database.engine.connect()]
    folder = tmp_path / "a file where a folder should be"
    folder.touch()
    leader = Leader(database, settings.model_copy(update={"data_dir": folder}))
    assert not leader.leads()
    for connection in held:
        connection.close()
    folder.unlink()
    assert leader.leads()
    leader.resign()
    database.dispose()


def test_a_run_that_cannot_be_reaped_does_not_block_others(scene: Scene) -> None:
    broken, fine = scene.running(), scene.running()
    with scene.database.write() as session:
        session.execute(update(Run).where(Run.id == parse_id("run", broken.run_id)).values(spec={}))
    scene.control.let_pass(7)
    with scene.database.read() as session:
        states = {row.id: row.state for row in session.execute(select(Run.id, Run.state))}
    assert states[parse_id("run", broken.run_id)] == "running", "the plant works"
    # Its back-off is half a second; slow sweeps take longer.
    assert states[parse_id("run", fine.run_id)] in ("retry_wait", "queued")


def test_a_run_that_cannot_be_placed_does_not_block_others(scene: Scene) -> None:
    broken, fine = scene.submit(), scene.submit()
    with scene.database.write() as session:
        session.execute(update(Run).where(Run.id == parse_id("run", broken)).values(device="abacus"))
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [fine]
    with scene.database.write() as session:  # for the scene's quota check
        session.execute(update(Run).where(Run.id == parse_id("run", broken)).values(device="cpu"))


def test_a_folder_that_cannot_be_deleted_does_not_block_others(scene: Scene) -> None:
    store = scene.site.app.state.store
    store.write("a-file", b"x")
    store.write("folder/file", b"x")
    with scene.database.write() as session:
        for prefix in ("a-file/inside", "folder"):
            session.add(
                QueuedDeletion(prefix=prefix, delete_at=now(), final_delete_at=now() + timedelta(hours=1))
            )
    scene.control.sweep()
    assert store.stat("a-file") == 1, "the injected fault works: a file cannot contain anything"
    assert store.stat("folder/file") is None


def test_runs_waiting_for_data_do_not_hide_runs_that_could_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_round, "MAX_CONSIDERED", 2)
    unready = {"dataset": scene.dataset, "tokenizer": {"kind": "bytes"}, "validation_fraction": 0.2}
    early = [scene.submit(data=unready) for _ in range(3)]
    run_id = scene.submit()
    scene.control.sweep()
    assert [placed["run_id"] for placed in scene.agent.heartbeat()] == [run_id]
    assert scene.show(early[0])["sentence"] == "preparing its data"


@pytest.mark.both_databases
def test_two_loops_that_place_at_once_place_each_run_once(scene: Scene) -> None:
    loops = [Control(scene.site.app) for _ in range(4)]
    runs = [scene.submit() for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda control: control.loop.run_round(sweep=False), loops))
    placed = scene.agent.heartbeat()
    assert sorted(placement["run_id"] for placement in placed) == sorted(runs)
    assert sorted(slot for placement in placed for slot in placement["slots"]) == [0, 1]


def with_short_sweeps(settings: Settings) -> Settings:
    """Waits long for nodes, but sweeps twenty times a second."""
    return settings.model_copy(update={"timers": settings.timers.model_copy(update={"sweep_seconds": 0.05})})


def wait_for_a_placement(scene: Scene) -> None:
    deadline = time.monotonic() + 20
    while not scene.agent.heartbeat():
        assert time.monotonic() < deadline, "nothing is placed"
        time.sleep(0.02)
