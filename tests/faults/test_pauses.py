"""Paused and resumed at any moment, a run learns what it would have, to the last bit, and holds nothing while it is paused.

A round waits for a moment, pauses, looks, and resumes. `TRAINWRIGHT_PAUSES` sets the number of rounds; the moments are
drawn anew each time, and the seed is printed.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.live import (
    SCALED_TIMERS,
    Live,
    eventually,
    live_platform,
    marked_processes,
    series,
    small_spec,
    write_letters,
)
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.runs import Run
from trainwright.contracts.end_codes import EndClass, EndCode, end_class
from trainwright.contracts.run_state import RunState

ROUNDS = int(os.environ.get("TRAINWRIGHT_PAUSES", "4"))
SEED = int(os.environ.get("TRAINWRIGHT_PAUSES_SEED", str(random.SystemRandom().randrange(10_000))))
STEPS = 40
SAVED_EVERY_STEPS = 7
PATIENCE_SECONDS = 300.0

TIMERS = SCALED_TIMERS | {
    "lease_seconds": 60.0,
    "margin_seconds": 20.0,
    "grace_seconds": 3.0,
    "start_seconds": 240.0,
}
"""Of patient leases: what ends early here was paused, however busy the machine."""

pytestmark = pytest.mark.timeout(300 + 300 * ROUNDS)

Moment = Callable[[Live, str], object]
"""Whether a run has come to the moment at which it is to be paused."""


def at_once(live: Live, run_id: str) -> bool:
    return True


def placed(live: Live, run_id: str) -> bool:
    return live.team.run(run_id).state is not RunState.QUEUED


def fetching(live: Live, run_id: str) -> bool:
    return any(_attempts(live).glob("*/data"))


def launched(live: Live, run_id: str) -> bool:
    return any(_attempts(live).glob("*/out/logs/rank-0.log"))


def first_step(live: Live, run_id: str) -> bool:
    return any('"step"' in path.read_text() for path in _attempts(live).glob("*/out/events.jsonl"))


def saving(live: Live, run_id: str) -> bool:
    return any(_attempts(live).glob("*/out/checkpoints/*.tmp-*"))


def validating(live: Live, run_id: str) -> bool:
    return live.team.run(run_id).summary.step >= 10


def late(live: Live, run_id: str) -> bool:
    return live.team.run(run_id).summary.step >= STEPS - 12


def finishing(live: Live, run_id: str) -> bool:
    return live.team.run(run_id).summary.step >= STEPS


def exporting(live: Live, run_id: str) -> bool:
    return live.team.run(run_id).state is RunState.COMPLETING


MOMENTS: tuple[Moment, ...] = (
    at_once,
    placed,
    fetching,
    launched,
    first_step,
    saving,
    validating,
    late,
    finishing,
    exporting,
)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data", TIMERS) as running:
        yield running


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return live.team.upload("letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")])


@pytest.fixture(scope="module")
def undisturbed(live: Live, dataset: Dataset) -> dict[str, dict[int, float]]:
    """Curves of a run that nobody touched."""
    run = live.team.wait(live.team.submit(_spec(dataset)).id, poll_seconds=0.3)
    assert run.state is RunState.SUCCEEDED, run.sentence
    return _curves(live, run)


def test_a_run_paused_at_any_moment_holds_nothing_and_learns_the_same(
    live: Live, dataset: Dataset, undisturbed: dict[str, dict[int, float]]
) -> None:
    draw = random.Random(SEED)
    moments = [
        moment for _ in range(ROUNDS // len(MOMENTS) + 1) for moment in draw.sample(MOMENTS, len(MOMENTS))
    ]
    print(f"seed {SEED}", flush=True)
    for moment in moments[:ROUNDS]:
        eventually(lambda: not list(_attempts(live).glob("*")), "the run before has left no folder", 20)
        told = _pause_and_resume(live, dataset, moment, draw.uniform(0, 0.4))
        print(f"{moment.__name__}: {told.was} → {told.paused.sentence} → {told.reasons}", flush=True)
        assert _curves(live, told.run) == undisturbed, moment.__name__
        assert all(end_class(reason) is EndClass.PLANNED for reason in told.reasons)
        if told.reasons[0] is EndCode.SAVED:
            assert told.resume_steps[1] == told.paused.summary.step


class Told(NamedTuple):
    """What became of a run that was paused once."""

    was: RunState
    paused: Run
    run: Run
    reasons: list[EndCode]
    """Of its attempts' ends."""
    resume_steps: list[int]


def _pause_and_resume(live: Live, dataset: Dataset, moment: Moment, late_seconds: float) -> Told:
    run_id = live.team.submit(_spec(dataset)).id
    eventually(lambda: moment(live, run_id), moment.__name__, PATIENCE_SECONDS)
    time.sleep(late_seconds)
    was = live.team.run(run_id).state
    live.team.pause(run_id)
    eventually(lambda: live.team.run(run_id).state is RunState.PAUSED, "paused", PATIENCE_SECONDS)
    paused = live.team.run(run_id)
    _check_nothing_is_held(live)
    live.team.resume(run_id)
    run = live.team.wait(run_id, poll_seconds=0.3)
    assert run.state is RunState.SUCCEEDED, run.sentence
    marks = live.team.metrics(run_id).attempts
    return Told(
        was, paused, run, [EndCode(m.reason) for m in marks if m.reason], [m.resume_step for m in marks]
    )


def _check_nothing_is_held(live: Live) -> None:
    (node,) = live.client.nodes()
    assert node.runs == []
    assert {quota.used for quota in live.team.show().quota} == {0}
    with closing(sqlite3.connect(live.platform.folder.path / "trainwright.sqlite3")) as database:
        assert database.execute("SELECT count(*) FROM placement_slot").fetchone() == (0,)
    eventually(lambda: not marked_processes(live.platform.folder.path), "no process is left", 20)
    eventually(lambda: live.client.nodes()[0].slots_free["cpu"] == 2, "its slots are free", 20)


def _curves(live: Live, run: Run) -> dict[str, dict[int, float]]:
    return {name: series(live.team, run.id, name) for name in ("loss", "grad_norm", "validation_loss")}


def _attempts(live: Live) -> Path:
    """Where the agent keeps the attempts that have not been settled."""
    return live.platform.folder.path / "agent" / "runs"


def _spec(dataset: Dataset) -> dict[str, object]:
    return small_spec(
        dataset,
        schedule={"steps": STEPS, "warmup_steps": 5},
        batch={"sequence_tokens": 128, "micro_sequences": 8, "global_sequences": 32},
        checkpoint={"every_steps": SAVED_EVERY_STEPS},
        validation={"every_steps": 10, "sequences": 32},
    )
