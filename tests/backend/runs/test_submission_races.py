"""All runs that are submitted concurrently are queued, and the team never occupies more slots than its limit."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import func, select, update

from tests.backend.conftest import Site, upload_letters
from tests.backend.metrics.test_two_processes import other_process, this_process
from tests.backend.scripted_agent import Agent, Control, Scene
from tests.faults.rows import FaultRow
from trainwright.contracts.run_state import RunState
from trainwright_backend.core.db import Database, Read, Write
from trainwright_backend.core.ids import public_id
from trainwright_backend.runs.tables import PlacementSlot, Run
from trainwright_backend.scheduling import placement, placement_round
from trainwright_backend.teams.slot_quota import SlotBudget, hold, slot_budgets
from trainwright_backend.teams.tables import Quota

LIMIT = 10


@pytest.fixture
def limited(scene: Scene) -> Scene:
    """A team that may use ten of the nodes' 18 CPU slots."""
    Agent.join(scene.site, "node-b", cpu_slots=16, reported={"cores": 32, "memory_bytes": 1 << 38})
    response = scene.site.admin.put(f"{scene.site.path}/quota/cpu", json={"limit": LIMIT})
    assert response.status_code == 200
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
    scene.control.loop.run_round(sweep=False)  # which places no other run
    assert max(seen) <= LIMIT
    assert used(scene.database) == occupied(scene.database) == LIMIT


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_concurrent_submissions_all_wait_and_never_occupy_more_than_the_limit(limited: Scene) -> None:
    """Three control loops place concurrently: the guard must not depend on a single leader."""
    submits, seen = 40, [0]
    loops = [Control(limited.site.app).loop for _ in range(3)]

    def submit(_: int) -> int:
        while True:
            response = limited.site.admin.post(limited.runs, json=limited.spec())
            if response.status_code != 503:  # SQLite had too many writers, and stored nothing
                return response.status_code
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


@pytest.mark.both_databases
@pytest.mark.fault_row(name="F16", trials=25, long=250)
def test_parallel_submissions_to_api_processes_occupy_no_more_than_the_limit(
    row: FaultRow, limited: Scene, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two API processes on PostgreSQL, and one on SQLite. Two control loops place."""
    with ExitStack() as processes:
        addresses = [processes.enter_context(this_process(limited.site.app))]
        if database_url.startswith("postgresql"):
            addresses.append(processes.enter_context(other_process(database_url, tmp_path)))
        for number in range(row.count):
            with row.trial(f"round {number}"):
                check_parallel_submissions(limited, addresses, submits=200)
            cancel_all(limited)
        with row.control(), monkeypatch.context() as patch:
            patch.setattr(placement, "hold", hold_beyond_the_limit)
            patch.setattr(placement_round, "slot_budgets", budgets_beyond_the_limit)
            check_parallel_submissions(limited, addresses, submits=2 * LIMIT)
        cancel_all(limited)


def check_parallel_submissions(limited: Scene, addresses: Sequence[tuple[str, int]], submits: int) -> None:
    headers = {
        "Authorization": limited.site.admin.headers["Authorization"],
        "Content-Type": "application/json",
    }
    body, seen = json.dumps(limited.spec()).encode(), [0]

    def submit(number: int) -> int:
        while True:
            connection = HTTPConnection(*addresses[number % len(addresses)], timeout=120)
            connection.request("POST", limited.runs, body, headers)
            status = connection.getresponse().status
            connection.close()
            if status != 503:  # SQLite had too many writers, and stored nothing
                return status
            time.sleep(0.05)

    loops = [Control(limited.site.app).loop for _ in range(2)]
    place = [partial(loop.run_round, sweep=False) for loop in loops]
    with repeatedly(partial(watch_slots, limited.database, seen), *place):
        with ThreadPoolExecutor(20) as pool:
            assert set(pool.map(submit, range(submits))) == {201}
        check_all_wait_for_the_limit(limited, submits, seen)


def hold_beyond_the_limit(session: Write, team_id: UUID, device: str, slots: int, run_id: UUID) -> bool:
    """The defect of the control: the guard of the limit lets twice as many slots pass, and so does the plan."""
    quota = update(Quota).where(Quota.team_id == team_id, Quota.device == device)
    session.execute(quota.values(slots_limit=Quota.slots_limit + LIMIT))
    taken = hold(session, team_id, device, slots, run_id)
    session.execute(quota.values(slots_limit=Quota.slots_limit - LIMIT))
    return taken


def budgets_beyond_the_limit(session: Read, device: str) -> dict[UUID, SlotBudget]:
    budgets = slot_budgets(session, device)
    return {team_id: replace(budget, limit=budget.limit + LIMIT) for team_id, budget in budgets.items()}


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
