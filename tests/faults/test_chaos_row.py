"""Row F21 of the fault table: many faults at random, one every 15 seconds on average, while fifty runs are submitted and train.

`TRAINWRIGHT_FAULTS_SEED` repeats the faults of an earlier session, whose seed it printed. How processes meet them depends on the
machine, so a repetition is similar and not the same.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.faults.chaos import FAULTS, Chaos, nodes_of
from tests.faults.disturbed_run import DisturbedRun, check_equal
from tests.faults.productivity import Productivity, effective_training_time_ratio, productivity
from tests.faults.rows import FaultRow
from tests.live import (
    PATIENT_TIMERS,
    TEAM,
    Live,
    end_runs,
    eventually,
    finished,
    marked_processes,
    rank_processes,
    release_nodes,
    series,
    small_spec,
    using_trainer,
)
from trainwright.client import Client, TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError

SEED = int(os.environ.get("TRAINWRIGHT_FAULTS_SEED", str(random.SystemRandom().randrange(10_000))))
MEAN_SECONDS = 15.0
"""Between two faults, whose times are a Poisson process."""

RUNS = 50
SEEDS = 5
"""The runs have so many different seeds, so many undisturbed runs are needed."""

CONCURRENT_RUNS = 17
"""Runs that train at once: each has steps for so many times the time between two submissions."""

NODES, SLOTS = 4, 6
SAVED_EVERY_STEPS = 10
STEP_SECONDS = 0.5
MIN_RATIO = 0.90
PATIENCE_SECONDS = 900.0


@pytest.fixture(scope="module")
def timers() -> Mapping[str, float]:
    """No lease expires: only faults end attempts. So many runs renew their leases less often than those of other rows."""
    return PATIENT_TIMERS | {"heartbeat_seconds": 2.0, "renewal_seconds": 3.0}


@dataclass
class Submissions:
    """Somebody who submits the runs evenly over the time, and what the server acknowledged."""

    live: Live
    specs: list[dict[str, Any]]
    every_seconds: float
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Id by the run's name."""
    _failed: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def submitting(self) -> Iterator[None]:
        key = self.live.client.create_key("submissions").secret
        thread = threading.Thread(target=self._submit_all, args=(key,))
        thread.start()
        try:
            yield
        except BaseException:
            self._failed.set()
            raise
        finally:
            thread.join()

    def _submit_all(self, key: str) -> None:
        began = time.monotonic()
        with Client(self.live.platform.url, key) as client:
            for number, spec in enumerate(self.specs):
                due = began + number * self.every_seconds
                if self._failed.wait(max(0.0, due - time.monotonic())):
                    return
                self.acknowledged[spec["name"]] = _submit(client.team(TEAM), spec)


def _submit(team: TeamClient, spec: dict[str, Any]) -> str:
    """Submit until it is acknowledged, like a person who looks first whether the server has the run; returns its id."""
    while True:
        try:
            found = [run.id for run in team.runs(q=spec["name"]) if run.name == spec["name"]]
            return found[0] if found else team.submit(spec).id
        except httpx.TransportError:
            pass
        except ApiError as error:
            if error.status != httpx.codes.SERVICE_UNAVAILABLE:
                raise
        time.sleep(1.0)


@pytest.mark.fault_row(name="F21", trials=60, long=960)
def test_random_faults_cost_little_time_and_nothing_else(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset, tmp_path: Path
) -> None:
    print(f"TRAINWRIGHT_FAULTS_SEED={SEED}")
    every_seconds = row.count * MEAN_SECONDS / RUNS
    steps = round(CONCURRENT_RUNS * every_seconds / STEP_SECONDS)
    specs = [_spec(dataset, f"chaos-{number}", steps, number % SEEDS) for number in range(RUNS)]
    undisturbed = [_losses(team, specs[seed] | {"name": f"undisturbed-{seed}"}) for seed in range(SEEDS)]
    team.set_slots("cpu", NODES * SLOTS)
    (own,) = live.client.nodes()
    live.client.set_draining(own.id, True)
    submissions = Submissions(live, specs, every_seconds)
    with nodes_of(live, tmp_path, NODES, SLOTS, "tests.faults.trainer_with_slow_steps") as nodes:
        chaos = Chaos(live, nodes, random.Random(SEED))
        with submissions.submitting():
            inject(chaos, row)
        for number, (name, run_id) in enumerate(submissions.acknowledged.items()):
            with row.checking(name):
                check_correct(team, run_id, undisturbed[number % SEEDS], tmp_path / name)
        with row.checking("after all runs"):
            check_nothing_left(team, submissions, [node.data for node in nodes])

    found = [productivity(team, run_id) for run_id in submissions.acknowledged.values()]
    row.measured.seconds += [seconds for run in found for seconds in run.recoveries_seconds]
    row.measured.ratio = effective_training_time_ratio(found)
    with row.checking("training time"):
        check_productive(found)

    live.client.set_draining(own.id, False)
    folder = live.platform.folder.path / "agent"
    with using_trainer(folder, "tests.faults.slow_trainer_forgetting_momentum"):
        forgetful = DisturbedRun(team, team.submit(specs[0] | {"name": "forgetful"}).id)
        forgetful.wait_for_checkpoint()
        os.kill(rank_processes(folder)[0], signal.SIGKILL)
        forgetful.wait_until_it_trains(attempt=2, beyond=3 * SAVED_EVERY_STEPS)
    end_runs(team)
    with row.control():
        check_equal(forgetful.losses_so_far(), undisturbed[0])
    with row.control():
        check_productive([productivity(team, forgetful.id)])


def inject(chaos: Chaos, row: FaultRow) -> None:
    """Inject each kind of fault equally often, each at its time or, if the one before takes longer, as soon as that is over."""
    kinds = list(FAULTS) * ceil(row.count / len(FAULTS))
    due = time.monotonic()
    for kind in chaos.drawn.sample(kinds, row.count):
        due += chaos.drawn.expovariate(1 / MEAN_SECONDS)
        time.sleep(max(0.0, due - time.monotonic()))
        print(f"{datetime.now(UTC):%H:%M:%S} {kind}", flush=True)
        with row.trial(kind):
            FAULTS[kind](chaos)
            release_nodes(chaos.live)


def check_correct(team: TeamClient, run_id: str, undisturbed: Mapping[int, float], folder: Path) -> None:
    """Fail unless the run succeeds with the losses of an undisturbed one and a model to download.

    It may also fail as `poison`, if two faults ended its supervisors without a checkpoint in between: that is the platform's rule.
    """
    run = finished(team, run_id, PATIENCE_SECONDS)
    marks = team.metrics(run_id).attempts
    if run.reason is EndCode.POISON:
        assert [mark.reason for mark in marks[-2:]] == [EndCode.SUPERVISOR_LOST] * 2, run.sentence
        assert marks[-1].resume_step == marks[-2].resume_step, run.sentence
        return
    assert run.state is RunState.SUCCEEDED, run.sentence
    losses = series(team, run_id, "loss")
    assert losses.keys() == undisturbed.keys(), f"{len(losses)} of {len(undisturbed)} steps"
    check_equal(losses, undisturbed)
    team.download(run_id, folder)  # verifies every digest


def check_nothing_left(team: TeamClient, submissions: Submissions, folders: list[Path]) -> None:
    """Fail unless each acknowledged run exists once, and neither processes nor slots stay in use."""
    listed = [(run.name, run.id) for run in team.runs(q="chaos-")]
    assert sorted(listed) == sorted(submissions.acknowledged.items())
    assert len(listed) == RUNS
    eventually(lambda: not any(map(marked_processes, folders)), "no process is left")
    assert not any(quota.used for quota in team.show().quota), "slots stay in use"


def check_productive(runs: list[Productivity]) -> None:
    ratio = effective_training_time_ratio(runs)
    assert ratio >= MIN_RATIO, f"ETTR {ratio:.3f}"


def _spec(dataset: Dataset, name: str, steps: int, seed: int) -> dict[str, Any]:
    return small_spec(
        dataset,
        name=name,
        seed=seed,
        batch={"sequence_tokens": 64, "micro_sequences": 4, "global_sequences": 4},
        schedule={"kind": "wsd", "steps": steps, "warmup_steps": 5, "decay_steps": 1},
        validation={"every_steps": 100, "sequences": 8},
        checkpoint={"every_steps": SAVED_EVERY_STEPS},
        resources={"device": "cpu", "slots_per_node": 1},
    )


def _losses(team: TeamClient, spec: dict[str, Any]) -> dict[int, float]:
    return DisturbedRun(team, team.submit(spec).id).losses()
