"""All runs that are submitted concurrently are queued, and the team never occupies more slots than its limit."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.backend.conftest import Site, upload_letters
from tests.backend.metrics.test_two_processes import other_process, this_process
from tests.backend.scripted_agent import Agent, Control, Scene
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Database
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.tables import PlacementSlot, Run
from trainwright_backend.teams.tables import Quota

LIMIT = 10
ROUNDS = int(os.environ.get("TRAINWRIGHT_SUBMISSION_ROUNDS", "1"))
"""How often the slow test repeats its submissions."""


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
@pytest.mark.timeout(600 * ROUNDS)
@pytest.mark.both_databases
def test_parallel_submissions_to_api_processes_occupy_no_more_than_the_limit(
    limited: Scene, database_url: str, tmp_path: Path
) -> None:
    """Two processes on PostgreSQL, one on SQLite, which may be too busy: then it stores nothing and is asked again."""
    submits = 200
    key = limited.site.admin.headers["Authorization"]
    body = json.dumps(limited.spec()).encode()
    with ExitStack() as processes:
        addresses = [processes.enter_context(this_process(limited.site.app))]
        if database_url.startswith("postgresql"):
            addresses.append(processes.enter_context(other_process(database_url, tmp_path)))

        def submit(number: int) -> int:
            while True:
                connection = HTTPConnection(*addresses[number % len(addresses)], timeout=120)
                headers = {"Authorization": key, "Content-Type": "application/json"}
                connection.request("POST", limited.runs, body, headers)
                status = connection.getresponse().status
                if status != 503:
                    return status
                time.sleep(0.05)

        for turn in range(ROUNDS):
            seen = [0]
            watch = partial(watch_slots, limited.database, seen)
            place = partial(limited.control.loop.run_round, sweep=False)
            with repeatedly(watch, place):
                with ThreadPoolExecutor(20) as pool:
                    assert set(pool.map(submit, range(submits))) == {201}
                check_all_wait_for_the_limit(limited, submits, seen)
            cancel_all(limited)
            print(f"round {turn + 1} of {ROUNDS}: at most {max(seen)} of {LIMIT} slots")


def watch_slots(database: Database, seen: list[int]) -> None:
    seen.append(max(occupied(database), used(database)))


def cancel_all(scene: Scene) -> None:
    """Cancel and delete the waiting runs, which gives their slots back."""
    with scene.database.read() as session:
        ids = [public_id("run", run_id) for run_id in session.scalars(select(Run.id))]
    for action in ("cancel", "delete"):
        done = scene.site.admin.post(f"{scene.runs}/bulk", json={"action": action, "runs": ids})
        assert done.status_code == 200 and all(item["done"] for item in done.json()), done.text
    assert occupied(scene.database) == used(scene.database) == 0


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
