"""Rows F5, F6, F7 and F22 of the fault table: API, broker and database that die or do not answer, and a platform that is restored from
its backup."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import redis

from tests.faults.disturbed_run import SAVED_EVERY_STEPS, DisturbedRun, submission_codes
from tests.faults.rows import FaultRow
from tests.live import (
    SCALED_TIMERS,
    Live,
    end_runs,
    eventually,
    live_environment,
    live_platform,
    rank_processes,
    small_spec,
    store_cpu_peak,
    write_letters,
)
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError
from trainwright_backend.local.data_folder import VARIABLES_FILE, DataFolder
from trainwright_backend.local.platform import Platform, bind_socket

LEASE_SECONDS = 10.0
TIMERS = SCALED_TIMERS | {"lease_seconds": LEASE_SECONDS, "margin_seconds": 3.0, "start_seconds": 240.0}
SEED = 20
STORM_SECONDS = 1.0
CALLERS = 4


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data", TIMERS) as running:
        yield running


@pytest.fixture(autouse=True)
def team(live: Live) -> Iterator[TeamClient]:
    """The team, whose runs end with the test."""
    yield live.team
    end_runs(live.team)


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return live.team.upload("letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")])


@dataclass
class Storm:
    """People who submit and cancel runs as fast as they can, and what the server acknowledged."""

    live: Live
    spec: Mapping[str, Any]
    submitted: dict[str, str] = field(default_factory=dict)
    """Id by the run's name."""
    cancelled: set[str] = field(default_factory=set)
    _done: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def blowing(self) -> Iterator[None]:
        key = self.live.client.create_key("storm").secret
        callers = [threading.Thread(target=self._call, args=(number, key)) for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        try:
            yield
        finally:
            self._done.set()
            for caller in callers:
                caller.join()

    def wait_for_another(self) -> None:
        """Wait until one more run is submitted."""
        known = len(self.submitted)
        eventually(lambda: len(self.submitted) > known, "runs are submitted again", 60)

    def _call(self, number: int, key: str) -> None:
        with Client(self.live.platform.url, key) as client:
            team = client.team(self.live.team.slug)
            count = 0
            while not self._done.is_set():
                count += 1
                name = f"storm-{number}-{count}"
                # The client repeats a request whose answer is lost. What it gives up is not acknowledged.
                with suppress(httpx.TransportError, ApiError):
                    run_id = team.submit({**self.spec, "name": name}).id
                    self.submitted[name] = run_id
                    team.cancel(run_id)
                    self.cancelled.add(run_id)


def check_acknowledged(storm: Storm, listed: Iterable[tuple[str, str, RunState]]) -> None:
    """Fail unless each acknowledged run exists once under its name, and each acknowledged cancel holds."""
    ids: dict[str, list[str]] = {}
    states = {}
    for name, run_id, state in listed:
        ids.setdefault(name, []).append(run_id)
        states[run_id] = state
    lost = [name for name, run_id in storm.submitted.items() if run_id not in ids.get(name, [])]
    assert not lost, f"acknowledged but lost: {lost[:5]}"
    twice = [name for name, found in ids.items() if len(found) > 1]
    assert not twice, f"duplicated: {twice[:5]}"
    running = [run_id for run_id in storm.cancelled if states[run_id] is not RunState.CANCELLED]
    assert not running, f"cancelled, but {running[:5]}"


@pytest.mark.fault_row(name="F5", trials=20, long=500)
def test_an_api_that_is_killed_in_a_storm_loses_and_repeats_nothing(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset
) -> None:
    run = DisturbedRun.submit(team, dataset, 1_000)
    run.wait_until_it_trains(attempt=1)
    ranks = rank_processes(live.platform.folder.path)
    storm = Storm(live, small_spec(dataset))
    with storm.blowing():
        for _ in range(row.count):
            time.sleep(STORM_SECONDS)
            pid = live.platform.pid("api")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            killed = time.monotonic()
            live.platform.start_api()
            with row.trial():
                row.recovered(killed)
                storm.wait_for_another()
                assert rank_processes(live.platform.folder.path) == ranks
    assert len(storm.submitted) > row.count
    listed = [(item.name, item.id, item.state) for item in team.runs() if item.name.startswith("storm-")]
    with row.checking("runs"):
        check_acknowledged(storm, listed)
        assert run.show().attempt == 1
    with row.control():
        check_acknowledged(storm, listed[1:])


def _kill_broker(live: Live) -> None:
    pid = live.platform.pid("broker")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: live.platform.exit_code("broker") is not None, "the broker is dead")
    live.platform.restart("broker")


def _empty_broker(live: Live) -> None:
    _broker(live).flushall()


def _fill_broker(live: Live) -> None:
    _broker(live).config_set("maxmemory", "1")
    time.sleep(2 * TIMERS["sweep_seconds"])
    _broker(live).config_set("maxmemory", "0")


def _broker(live: Live) -> redis.Redis:
    variables = json.loads((live.platform.folder.path / VARIABLES_FILE).read_text())
    return redis.Redis(unix_socket_path=urlsplit(variables["TRAINWRIGHT_BROKER_URL"]).path)


BROKER_FAULTS = {
    "killed and empty again": _kill_broker,
    "flushed": _empty_broker,
    "out of memory": _fill_broker,
}
CONSUMING_SECONDS = 30.0


@pytest.mark.fault_row(name="F6", trials=6, long=60)
def test_a_broker_that_loses_everything_delays_work_by_seconds(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset, tmp_path: Path
) -> None:
    kinds = list(BROKER_FAULTS)
    for number in range(row.count):
        kind = kinds[number % len(kinds)]
        BROKER_FAULTS[kind](live)
        began = time.monotonic()
        with row.trial(kind):
            _check_work_is_done(team, dataset, tmp_path / f"letters-{number}.jsonl")
            row.recovered(began)

    pid = live.platform.pid("worker")
    os.kill(pid, signal.SIGSTOP)
    try:
        with row.control():
            _check_work_is_done(team, dataset, tmp_path / "letters-control.jsonl")
    finally:
        os.kill(pid, signal.SIGCONT)


def _check_work_is_done(team: TeamClient, dataset: Dataset, file: Path) -> None:
    """Fail unless a run is placed, and a worker reads a new dataset, in time."""
    run_id = team.submit(small_spec(dataset)).id
    uploaded = team.upload(file.stem, [write_letters(file, documents=20)])
    eventually(lambda: team.run(run_id).state is not RunState.QUEUED, "the run is placed", CONSUMING_SECONDS)
    eventually(
        lambda: team.dataset(uploaded.id).versions[0].state == "ready",
        "the dataset is read",
        CONSUMING_SECONDS,
    )
    end_runs(team)


LOCKED_LEASES = (0.5, 3.0)


@pytest.mark.fault_row(name="F7", trials=4, long=10)
def test_a_locked_database_answers_busy_and_loses_nothing(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset
) -> None:
    drawn = random.Random(SEED)
    key = live.client.create_key("locked").secret
    for number in range(row.count):
        leases = LOCKED_LEASES[number % len(LOCKED_LEASES)]
        run = DisturbedRun.submit(team, dataset, 1_000)
        run.wait_until_it_trains(attempt=1)
        time.sleep(drawn.random())
        with row.trial(f"locked for {leases:g} leases"):
            with _locked_database(live):
                answers = submission_codes(live, key, small_spec(dataset), leases * LEASE_SECONDS)
            unlocked = time.monotonic()
            assert set(answers) <= {201, 503}, answers
            if leases < 1:
                _check_first_attempt(run)
            else:
                assert 503 in answers
                run.wait_until_it_trains(attempt=2)
                assert run.reasons()[0] in ("self_fenced", "lease_expired"), run.reasons()
            row.recovered(unlocked)
        if leases > 1 and number < len(LOCKED_LEASES):
            with row.control():
                _check_first_attempt(run)
        end_runs(team)


@contextmanager
def _locked_database(live: Live) -> Iterator[None]:
    """Hold SQLite's only write lock."""
    (file,) = live.platform.folder.path.glob("*.sqlite3")
    with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def _check_first_attempt(run: DisturbedRun) -> None:
    """Fail unless the run trains on in its first attempt."""
    step = run.show().summary.step
    run.wait_until_it_trains(attempt=1, beyond=step)


@pytest.mark.fault_row(name="F22", trials=2, long=3)
def test_a_platform_that_is_wiped_at_work_is_restored_from_its_backup(row: FaultRow, tmp_path: Path) -> None:
    for number in range(row.count):
        folder, place = tmp_path / f"platform-{number}", tmp_path / f"backup-{number}"
        with live_platform(folder, TIMERS) as live:
            team = live.team
            dataset = team.upload("letters", [write_letters(tmp_path / f"letters-{number}.jsonl")])
            done = team.wait(team.submit(small_spec(dataset)).id, poll_seconds=0.3)
            assert done.state is RunState.SUCCEEDED, done.sentence
            run = DisturbedRun.submit(team, dataset, 1_000)
            run.wait_until_it_trains(attempt=1, beyond=2 * SAVED_EVERY_STEPS)
            run.wait_for_checkpoint()
            key = live.client.create_key("later").secret
            live.platform.command("backup", str(place))
        shutil.rmtree(folder)
        wiped = time.monotonic()
        with row.trial():
            _server("restore", str(place), "--data", str(folder))
            with _restored(folder) as platform, Client(platform.url, key) as client:
                again = DisturbedRun(client.team(team.slug), run.id)
                found = again.team.run(done.id)
                assert (found.state, found.summary) == (done.state, done.summary)
                again.team.download(done.id, tmp_path / f"model-{number}")  # verifies every digest
                row.recovered(wiped)
                again.wait_until_it_trains(attempt=2, beyond=SAVED_EVERY_STEPS)
                end_runs(again.team)

    _server("verify", str(place))
    objects = [file for file in place.rglob("*") if file.is_file() and file.stat().st_size > 1_000]
    random.Random(SEED).choice(objects).unlink()
    with row.control():
        _server("verify", str(place))


@contextmanager
def _restored(folder: Path) -> Iterator[Platform]:
    """A platform on a restored data folder, until the block ends; its runs' processes end with it."""
    data = DataFolder.acquire(folder)
    store_cpu_peak(folder / "agent", cpu_slots=2)
    platform = Platform(data, bind_socket("127.0.0.1", 0), environment=live_environment(TIMERS))
    try:
        with platform:
            yield platform
            platform.stop_runs()
    finally:
        data.release()


def _server(*words: str) -> None:
    """Fail unless the command of `trainwright-server` succeeds."""
    command = [sys.executable, "-m", "trainwright_backend.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
