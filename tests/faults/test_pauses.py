"""Paused and resumed at any moment, a run learns what it would have, to the last bit, and holds nothing while it is paused.

A round waits for a moment, pauses, looks whether the state was saved, and resumes. `TRAINWRIGHT_PAUSES` sets the number
of rounds (`make pauses`: 20); the moments are drawn anew each time, and the seed is printed. Trainers with planted faults,
which do not save when they are asked to, must not pass for ones that do.
"""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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
from trainwright.connection import ApiError
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.runs import Run
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndClass, EndCode, end_class
from trainwright.contracts.run_state import RunState
from trainwright_agent.identity import load_settings, save_settings

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


def queued(live: Live, run_id: str) -> bool:
    """Until a node takes it, which `_pause` sees to."""
    return live.team.run(run_id).state is RunState.QUEUED


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
    queued,
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


AS_THEY_COME = (saving,)
"""Over so soon that nothing may be waited for in them."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A platform whose node finds the trainers with planted faults too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
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


def test_a_run_paused_at_any_moment_saves_holds_nothing_and_learns_the_same(
    live: Live, dataset: Dataset, undisturbed: dict[str, dict[int, float]]
) -> None:
    draw = random.Random(SEED)
    sets = [draw.sample(MOMENTS, len(MOMENTS)) for _ in range(ROUNDS // len(MOMENTS) + 1)]
    print(f"seed {SEED}", flush=True)
    for moment in [moment for drawn in sets for moment in drawn][:ROUNDS]:
        told = _pause(live, dataset, moment, draw.uniform(0, 0.4) * (moment not in AS_THEY_COME))
        print(f"{moment.__name__}: {told.was} at step {told.asked_at} → {told.run.sentence}", flush=True)
        _check_saved(told)
        if told.run.state is RunState.PAUSED:
            _resume_to_the_end(live, told)
        assert _curves(live, told.run) == undisturbed, moment.__name__
        kinds = [one.kind for one in live.team.checkpoints(told.run.id)]
        assert kinds.count(CheckpointKind.EXPORT) == 1, "exported once"


@pytest.mark.parametrize(
    ("fault", "complaint"), [("deaf", "went on to its last step"), ("unsaved", "step it was paused at")]
)
def test_a_trainer_that_does_not_save_when_it_is_asked_to_is_found_out(
    live: Live, dataset: Dataset, fault: str, complaint: str
) -> None:
    with _trainer(live, f"tests.faults.{fault}"):
        told = _pause(live, dataset, first_step, 0.0)
    assert told.run.state is RunState.PAUSED
    live.team.cancel(told.run.id)
    with pytest.raises(AssertionError, match=complaint):
        _check_saved(told)


class Told(NamedTuple):
    """What became of a run that was asked to pause."""

    was: RunState
    asked_at: int
    """Its step then, as far as the platform had heard."""
    run: Run
    """Paused, or ended before the word came."""
    saved: list[int]
    """Steps of its valid states."""
    reasons: list[EndCode]
    """Of its attempts' ends."""
    notes: list[str]


def _pause(live: Live, dataset: Dataset, moment: Moment, late_seconds: float) -> Told:
    eventually(lambda: not list(_attempts(live).glob("*")), "the run before has left no folder", 20)
    (node,) = live.client.nodes()
    live.client.set_draining(node.id, moment is queued)
    run_id = live.team.submit(_spec(dataset)).id
    eventually(lambda: moment(live, run_id), moment.__name__, PATIENCE_SECONDS)
    time.sleep(late_seconds)
    before = live.team.run(run_id)
    try:
        live.team.pause(run_id)
    except ApiError as refused:
        assert refused.code == "run_is_final", refused
    live.client.set_draining(node.id, False)
    over = (RunState.PAUSED, RunState.SUCCEEDED)
    eventually(lambda: live.team.run(run_id).state in over, "paused", PATIENCE_SECONDS)
    states = [one for one in live.team.checkpoints(run_id) if one.kind is CheckpointKind.STATE and one.valid]
    _check_nothing_is_held(live)
    return Told(
        was=before.state,
        asked_at=before.summary.step,
        run=live.team.run(run_id),
        saved=[state.step for state in states],
        reasons=[EndCode(mark.reason) for mark in live.team.metrics(run_id).attempts if mark.reason],
        notes=[event.message for event in live.team.events(run_id) if event.type == "note"],
    )


def _check_saved(told: Told) -> None:
    """What it had learned is saved, and it did not train on for long before it left."""
    assert not any("ended otherwise" in note for note in told.notes), told.notes
    assert all(end_class(reason) is EndClass.PLANNED for reason in told.reasons), told.reasons
    step, early = told.run.summary.step, told.asked_at <= STEPS // 2
    assert not early or step < STEPS, f"asked at step {told.asked_at}, it went on to its last step"
    if told.reasons == [EndCode.STOPPED]:
        assert told.was is not RunState.RUNNING, "it had made steps, so there was something to save"
    elif told.reasons:
        assert step in told.saved, (
            f"of the step it was paused at, {step}, there is no checkpoint: {told.saved}"
        )
    else:
        assert step == 0, "it was paused before its first attempt"


def _resume_to_the_end(live: Live, told: Told) -> None:
    live.team.resume(told.run.id)
    run = live.team.wait(told.run.id, poll_seconds=0.3)
    assert run.state is RunState.SUCCEEDED, run.sentence
    resumed_at = live.team.metrics(run.id).attempts[-1].resume_step
    assert resumed_at == max(told.saved, default=0)


@contextmanager
def _trainer(live: Live, module: str) -> Iterator[None]:
    """Attempts that begin meanwhile are those of another trainer."""
    agent = live.platform.folder.path / "agent"
    right = load_settings(agent)
    save_settings(agent, right.model_copy(update={"trainer_module": module}))
    try:
        yield
    finally:
        save_settings(agent, right)


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
