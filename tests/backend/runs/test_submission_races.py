"""All runs that are submitted concurrently are queued, and the team never occupies more slots than its limit."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.backend.conftest import Site, upload_letters
from tests.backend.metrics.test_two_processes import other_process, this_process
from tests.backend.scripted_agent import Agent, Control, Scene
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Database
from trainwright_backend.runs.tables import PlacementSlot, Run
from trainwright_backend.teams.tables import Quota

LIMIT = 10


@pytest.fixture
def limited(scene: Scene) -> Scene:
    """A team that may use ten of the nodes' 18 CPU slots."""
    Agent.join(scene.site, "node-b", cpu_slots=16, reported={"cores": 32, "memory_bytes": 1 << 38})
    answer = scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": LIMIT})
    assert answer.status_code == 200
    return scene


def occupied(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(PlacementSlot)) or 0


def used(database: Database) -> int:
    with database.read() as session:
        return session.scalars(select(Quota.used).where(Quota.device == "cpu")).one()


@contextmanager
def repeatedly(*calls: Callable[[], object]) -> Iterator[None]:
    """Call each function repeatedly in its own thread."""
    done = threading.Event()

    def repeat(call: Callable[[], object]) -> None:
        while not done.is_set():
            call()
            time.sleep(0.01)

    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(repeat, call) for call in calls]
        try:
            yield
        finally:
            done.set()
        for future in running:
            future.result()


def check_all_wait_for_the_limit(scene: Scene, submits: int, seen: list[int]) -> None:
    """All runs exist and wait, and as many as the limit allows are placed."""
    with scene.database.read() as session:
        states = session.scalars(select(Run.state)).all()
    assert states == [RunState.QUEUED] * submits
    deadline = time.monotonic() + 60
    while occupied(scene.database) < LIMIT:
        assert time.monotonic() < deadline, "the limit is reached"
        time.sleep(0.05)
    assert max(seen) <= LIMIT
    assert used(scene.database) == occupied(scene.database) == LIMIT


@pytest.mark.both_databases
def test_concurrent_submissions_all_wait_and_never_occupy_more_than_the_limit(limited: Scene) -> None:
    """Three control loops place concurrently: the guard must not depend on a single leader."""
    submits, seen = 40, [0]
    loops = [Control(limited.site.app).loop for _ in range(3)]

    def submit(_: int) -> int:
        while True:
            answer = limited.site.admin.post(limited.runs, json=limited.spec())
            if answer.status_code != 503:  # SQLite had too many writers, and stored nothing
                return answer.status_code
            time.sleep(0.05)

    place = [lambda loop=loop: loop.run_round(sweep=False) for loop in loops]
    watch = lambda: seen.append(max(occupied(limited.database), used(limited.database)))  # noqa: E731
    with repeatedly(watch, *place):
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(submit, range(submits))) == {201}
        check_all_wait_for_the_limit(limited, submits, seen)
    limited.control.sweep()
    with limited.database.read() as session:
        reasons = session.scalars(select(Run.waiting_reason)).all()
    waits = "needs 1 CPU slot; your team uses 10 of 10 (pilot, pilot, pilot and 7 more)"
    assert waits in reasons and f"{waits}; 2nd in line, behind pilot" in reasons


@pytest.mark.slow(target="databases")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_two_api_processes_occupy_no_more_than_the_limit(
    limited: Scene, database_url: str, tmp_path: Path
) -> None:
    submits, seen = 200, [0]
    key = limited.site.admin.headers["Authorization"]
    body = json.dumps(limited.spec()).encode()
    with this_process(limited.site.app) as here, other_process(database_url, tmp_path) as there:

        def submit(number: int) -> int:
            connection = HTTPConnection(*(here, there)[number % 2], timeout=120)
            headers = {"Authorization": key, "Content-Type": "application/json"}
            connection.request("POST", limited.runs, body, headers)
            return connection.getresponse().status

        watch = lambda: seen.append(max(occupied(limited.database), used(limited.database)))  # noqa: E731
        place = lambda: limited.control.loop.run_round(sweep=False)  # noqa: E731
        with repeatedly(watch, place):
            with ThreadPoolExecutor(20) as pool:
                assert set(pool.map(submit, range(submits))) == {201}
            check_all_wait_for_the_limit(limited, submits, seen)


def test_waiting_runs_report_a_lowered_limit(limited: Scene) -> None:
    run_id = limited.submit(slots=2)
    limited.site.admin.put(f"{limited.site.path}/quota/cpu", json={"limit": 1})
    limited.control.sweep()
    assert limited.show(run_id)["sentence"] == (
        "needs 2 CPU slots, and your team may use 1 at once; ask a site admin to raise the limit"
    )
    limited.site.admin.put(f"{limited.site.path}/quota/cpu", json={"limit": 2})
    limited.control.sweep()
    assert limited.show(run_id)["sentence"].startswith("placed on")


def test_a_team_s_limit_delays_no_other_team(limited: Scene) -> None:
    """A run that waits for its own team's limit reserves no nodes."""
    limited.site.admin.put(f"{limited.site.path}/quota/cpu", json={"limit": 2})
    first, second = limited.submit(slots=2), limited.submit(slots=2)
    other = Site(limited.site.app, limited.site.other_team("globex"), "globex")
    data = {"dataset": upload_letters(other)["id"], "tokenizer": {"kind": "bytes"}}
    made = other.admin.post(f"{other.path}/runs", json=limited.spec(slots=2, data=data))
    assert made.status_code == 201, made.text
    other.prepare()
    limited.control.sweep()
    assert limited.show(first)["sentence"].startswith("placed on")
    assert limited.show(second)["sentence"] == "needs 2 CPU slots; your team uses 2 of 2 (pilot)"
    theirs = other.admin.get(f"{other.path}/runs/{made.json()['id']}").json()
    assert theirs["sentence"].startswith("placed on")
