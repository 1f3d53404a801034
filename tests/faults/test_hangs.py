"""Ranks that are stopped at random points are named soon after the limit, with node, axis and collective, and slow, uneven steps
are never taken for a hang. `TRAINWRIGHT_UNEVEN_MINUTES=30` trains uneven steps for half an hour."""

import os
import random
import re
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.rows import FaultRow
from tests.live import (
    SCALED_TIMERS,
    Live,
    LiveAgent,
    end_runs,
    eventually,
    live_agent,
    live_platform,
    rank_processes,
    series,
    small_spec,
    using_trainer,
    write_letters,
)
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.rank_progress import RankActivity, RankProgress, read_progress
from trainwright.contracts.run_state import RunState

# Each stop costs an attempt, a self-test of the node, and the training up to the next checkpoint.
pytestmark = [pytest.mark.slow(target="faults"), pytest.mark.timeout(900)]

HANG_SECONDS = 3.0
TIMERS = SCALED_TIMERS | {
    "hang_seconds": HANG_SECONDS,
    "lease_seconds": 60.0,
    "margin_seconds": 20.0,
    "grace_seconds": 3.0,
    "start_seconds": 240.0,
}
"""With long leases, so that only hangs end attempts, even on a busy machine."""
MAX_LIMIT_SECONDS = 12.0
"""Three times a one-second step, measured by checks one second apart on a machine that is sometimes busy."""
UNEVEN_MINUTES = float(os.environ.get("TRAINWRIGHT_UNEVEN_MINUTES", "5"))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with pytest.MonkeyPatch.context() as patch:
        # Python finds the trainer with the uneven steps there.
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        with live_platform(tmp_path_factory.mktemp("platform") / "data", TIMERS) as running:
            yield running


@pytest.fixture(scope="module")
def other(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with live_agent(live, tmp_path_factory.mktemp("other") / "node", "other") as agent:
        yield agent


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return live.team.upload("letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")])


@pytest.fixture(autouse=True)
def _free_slots(live: Live) -> Iterator[None]:
    """A test that fails leaves no run on the slots of the next one."""
    yield
    end_runs(live.team)


def start(live: Live, dataset: Dataset, every_steps: int) -> str:
    """A run of two data ranks with two tensor ranks each, on two nodes, that saves often and ends late."""
    resources = {"device": "cpu", "nodes": 2, "slots_per_node": 2}
    schedule = {"steps": 100_000, "warmup_steps": 5}
    checkpoint, parallelism = {"every_steps": every_steps}, {"tensor": 2}
    sections = {"schedule": schedule, "resources": resources, "checkpoint": checkpoint}
    return live.team.submit(small_spec(dataset, parallelism=parallelism, **sections)).id


class Stopped:
    """A stopped rank and its progress."""

    def __init__(self, live: Live, other: LiveAgent, rank: int) -> None:
        """Stop ``rank``."""
        first_node_is_local = bool(rank_processes(live.platform.folder.path).keys() & {0, 1})
        is_local = (rank < 2) == first_node_is_local
        folder = live.platform.folder.path if is_local else other.data
        (local,) = (node.name for node in live.client.nodes() if node.name != "other")
        self.rank, self.node = rank, local if is_local else "other"
        self.pid = rank_processes(folder)[rank]
        os.kill(self.pid, signal.SIGSTOP)
        self.at = time.time()
        status = Path(f"/proc/{self.pid}/stat")
        eventually(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", "the rank is stopped")
        runs = next(found for found in (folder / "agent" / "runs", folder / "runs") if found.is_dir())
        newest = max(runs.glob(f"*/out/positions/rank-{rank}"), key=lambda file: file.stat().st_ctime)
        progress = read_progress(newest.read_bytes())
        assert progress is not None
        self.progress: RankProgress = progress

    def check(self, message: str) -> None:
        """Check that the message names the rank, its node, and the collective that it has not entered or is in."""
        assert f"Rank {self.rank} on {self.node} " in message
        assert "Its process is stopped." in message
        named = re.findall(r"(\w+) ([\d,]+) of the (\w+) axis", message)
        assert named, message
        for operation, number, axis in named:
            count = next((one for one in self.progress.axes if one.axis == axis), None)
            entered, left = (count.entered, count.left) if count else (0, 0)
            assert int(number.replace(",", "")) in (entered + 1, left + 1), message
            assert operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast"), message


def wait_for_the_hang(live: Live, run_id: str, attempt: int) -> tuple[str, float]:
    """The message of the hang that ends ``attempt``, and the time at which it was found."""
    found: list[tuple[str, float]] = []

    def is_reported() -> bool:
        ends = [item for item in live.team.events(run_id) if item.state is RunState.STOPPING]
        found.extend((item.message, item.time.timestamp()) for item in ends if item.attempt == attempt)
        return bool(found)

    eventually(is_reported, f"attempt {attempt} hangs", 60)
    return found[0]


def wait_for_training(live: Live, run_id: str, attempt: int, step: int) -> None:
    def trains() -> bool:
        run = live.team.run(run_id)
        return run.state is RunState.RUNNING and run.attempt == attempt and run.summary.step >= step

    eventually(trains, f"attempt {attempt} makes step {step}", 240)


def limit_of(message: str) -> float:
    found = re.search(r"the limit was (\d+) s", message)
    assert found, message
    return float(found[1])


@pytest.mark.fault_row(name="F2", trials=10, long=50)
def test_ranks_that_are_stopped_at_random_points_are_named(
    row: FaultRow, live: Live, other: LiveAgent, dataset: Dataset
) -> None:
    drawn, delays = random.Random(19), []  # seconds beyond the limit that the message names
    run_id = start(live, dataset, every_steps=5)
    step = 8
    for attempt in range(1, row.count + 1):
        wait_for_training(live, run_id, attempt, step)
        time.sleep(drawn.uniform(0, 1))
        stopped = Stopped(live, other, drawn.randrange(4))
        stopped_at = time.monotonic()
        message, found_at = wait_for_the_hang(live, run_id, attempt)
        with row.trial():
            stopped.check(message)
            limit = limit_of(message)
            assert limit <= MAX_LIMIT_SECONDS, "steps of less than a second"
            delays.append(found_at - stopped.at - limit)
        step = stopped.progress.step + 8  # a checkpoint later, so that the ends do not count together
        wait_for_training(live, run_id, attempt + 1, stopped.progress.step + 1)
        row.recovered(stopped_at)
    stopped.rank = (stopped.rank + 1) % 4
    with row.control():
        stopped.check(message)
    end_runs(live.team)
    print(f"\nfound {', '.join(f'{delay:.1f}' for delay in delays)} s after the limit")
    # During some of the ten stops, the tests' own processes occupy the cores.
    assert statistics.median(delays) <= 2
    assert max(delays) <= 10


def test_a_rank_that_is_stopped_inside_a_save_is_named(
    live: Live, other: LiveAgent, dataset: Dataset
) -> None:
    run_id = start(live, dataset, every_steps=1)
    wait_for_training(live, run_id, 1, 3)
    for _ in range(200):
        stopped = Stopped(live, other, 3)
        if stopped.progress.activity is RankActivity.SAVING:
            break
        os.kill(stopped.pid, signal.SIGCONT)
        time.sleep(0.02)
    assert stopped.progress.activity is RankActivity.SAVING
    message, found_at = wait_for_the_hang(live, run_id, 1)
    end_runs(live.team)
    print(f"\nfound {found_at - stopped.at - limit_of(message):.1f} s after the limit")
    stopped.check(message)
    assert f"saving the checkpoint of step {stopped.progress.step:,}" in message
    assert found_at - stopped.at <= limit_of(message) + 10


@pytest.mark.timeout(900 + 60 * UNEVEN_MINUTES)
def test_slow_uneven_steps_are_no_hang_and_a_rank_stopped_among_them_is(
    live: Live, other: LiveAgent, dataset: Dataset
) -> None:
    module = "tests.faults.trainer_with_uneven_steps"
    with using_trainer(live.platform.folder.path / "agent", module), using_trainer(other.data, module):
        run_id = start(live, dataset, every_steps=20)
        wait_for_training(live, run_id, 1, 1)
        time.sleep(60 * UNEVEN_MINUTES)
    ends = [mark.reason for mark in live.team.metrics(run_id).attempts if mark.reason]
    assert EndCode.HANG not in ends
    attempt = live.team.run(run_id).attempt
    wait_for_training(live, run_id, attempt, live.team.run(run_id).summary.step + 1)
    stopped = Stopped(live, other, 2)
    message, found_at = wait_for_the_hang(live, run_id, attempt)
    spent = series(live.team, run_id, "seconds").values()
    end_runs(live.team)
    stopped.check(message)
    limit = limit_of(message)
    print(
        f"\n{stopped.progress.step:,} steps, median {statistics.median(spent):.1f} s, longest {max(spent):.1f} s, "
        f"other ends: {ends}; limit {limit:.0f} s, found {found_at - stopped.at - limit:.1f} s after it"
    )
    assert max(spent) > HANG_SECONDS, "some steps took longer than the least limit"
    assert limit > HANG_SECONDS, "it was learned from the steps"
    assert found_at - stopped.at <= limit + 10
