"""Rows F6, F7 and F22 of the fault table: a broker that loses messages, a database that is locked, and a platform that is restored from
its backup."""

import itertools
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import redis

from tests.faults.disturbed_run import (
    LEASE_SECONDS,
    LONG_FAULTS,
    SAVED_EVERY_STEPS,
    TIMERS,
    DisturbedRun,
)
from tests.faults.restored import restored_platform, run_server_command
from tests.faults.rows import FaultRow
from tests.faults.submissions import submission_codes
from tests.live import (
    TEAM,
    Live,
    end_runs,
    eventually,
    live_platform,
    small_spec,
    write_letters,
)
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import RunState

SEED = 20


@contextmanager
def _killed_broker(live: Live) -> Iterator[None]:
    """Dead for the block, then empty."""
    pid = live.platform.pid("broker")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: live.platform.exit_code("broker") is not None, "the broker is dead")
    yield
    live.platform.restart("broker")


@contextmanager
def _flushed_broker(live: Live) -> Iterator[None]:
    """All messages of the block are lost that nobody has received yet."""
    yield
    _broker(live).flushall()


@contextmanager
def _full_broker(live: Live) -> Iterator[None]:
    """Takes no message during the block, and for two sweeps of the control loop."""
    _broker(live).config_set("maxmemory", "1")
    yield
    time.sleep(2 * TIMERS["sweep_seconds"])
    _broker(live).config_set("maxmemory", "0")


def _broker(live: Live) -> redis.Redis:
    return redis.Redis.from_url(live.platform.broker_url)


BROKER_FAULTS = {
    "killed": _killed_broker,
    "flushed": _flushed_broker,
    "out of memory": _full_broker,
}
CONSUMING_SECONDS = 30.0


@pytest.mark.fault_row(name="F6", trials=6, long=60)
def test_a_broker_that_loses_messages_delays_work_by_seconds(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset, tmp_path: Path
) -> None:
    for number, kind in enumerate(itertools.islice(itertools.cycle(BROKER_FAULTS), row.count)):
        with row.trial(kind):
            with BROKER_FAULTS[kind](live):
                work = _submit_work(team, dataset, tmp_path / f"letters-{number}.jsonl")
            over = time.monotonic()
            check_done(team, *work)
            row.recovered(over)
        end_runs(team)

    pid = live.platform.pid("worker")
    os.kill(pid, signal.SIGSTOP)
    work = _submit_work(team, dataset, tmp_path / "letters-control.jsonl")
    with row.control():
        check_done(team, *work)
    os.kill(pid, signal.SIGCONT)


def _submit_work(team: TeamClient, dataset: Dataset, file: Path) -> tuple[str, str]:
    """A run to place, and a dataset for a worker to read; returns their ids."""
    run = team.submit(small_spec(dataset))
    return run.id, team.upload(file.stem, [write_letters(file, documents=20)]).id


def check_done(team: TeamClient, run_id: str, dataset_id: str) -> None:
    """Fail unless the run is placed and the dataset is read in time."""
    eventually(lambda: team.run(run_id).state is not RunState.QUEUED, "the run is placed", CONSUMING_SECONDS)
    eventually(
        lambda: team.dataset(dataset_id).versions[0].state == "ready",
        "the dataset is read",
        CONSUMING_SECONDS,
    )


LOCKED_LEASES = (0.5, 3.0)


@pytest.mark.fault_row(name="F7", trials=4, long=10)
def test_a_locked_database_answers_busy_and_loses_nothing(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset
) -> None:
    drawn = random.Random(SEED)
    key = live.client.create_key("locked").secret
    for number in range(row.count):
        leases = LOCKED_LEASES[number % len(LOCKED_LEASES)]
        run = DisturbedRun.submit(team, dataset, LONG_FAULTS)
        run.wait_until_it_trains(attempt=1)
        time.sleep(drawn.random())
        with row.trial(f"locked for {leases:g} leases"):
            with _locked_database(live):
                responses = submission_codes(live, key, small_spec(dataset), leases * LEASE_SECONDS)
            unlocked = time.monotonic()
            assert set(responses) <= {201, 503}, responses
            if leases < 1:
                _check_first_attempt(run)
            else:
                assert 503 in responses
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
            run = DisturbedRun.submit(team, dataset, LONG_FAULTS)
            run.wait_until_it_trains(attempt=1, beyond=2 * SAVED_EVERY_STEPS)
            run.wait_for_checkpoint()
            key = live.client.create_key("later").secret
            run_server_command("backup", str(place), "--data", str(folder))
        shutil.rmtree(folder)
        wiped = time.monotonic()
        with row.trial():
            run_server_command("restore", str(place), "--data", str(folder))
            with restored_platform(folder, TIMERS) as platform, Client(platform.url, key) as client:
                again = DisturbedRun(client.team(TEAM), run.id)
                found = again.team.run(done.id)
                assert (found.state, found.summary) == (done.state, done.summary)
                again.team.download(done.id, tmp_path / f"model-{number}")  # verifies every digest
                row.recovered(wiped)
                again.wait_until_it_trains(attempt=2, beyond=SAVED_EVERY_STEPS)
                end_runs(again.team)

    run_server_command("verify", str(place))
    objects = [file for file in place.rglob("*") if file.is_file() and file.stat().st_size > 1_000]
    random.Random(SEED).choice(objects).unlink()
    with row.control():
        run_server_command("verify", str(place))
