"""A run that is paused and resumed at any moment learns the same bit for bit, and uses no slots while it is paused.

A round waits for a moment, pauses, checks that the state was saved, and resumes. `TRAINWRIGHT_PAUSES` sets the number of
rounds (`make pauses`: 20); the moments are random, and the seed is printed. Trainers with injected faults, which do
not save on request, must be detected.
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
    using_trainer,
    write_letters,
)
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.runs import Run
from trainwright.contracts.checkpoint import CheckpointKind
from trainwright.contracts.end_codes import EndClass, EndCode, end_class
from trainwright.contracts.run_state import RunState
from trainwright.transport.errors import ApiError

ROUNDS = int(os.environ.get("TRAINWRIGHT_PAUSES", "4"))
SEED = int(os.environ.get("TRAINWRIGHT_PAUSES_SEED", str(random.SystemRandom().randrange(10_000))))
STEPS = 40
SAVED_EVERY_STEPS = 7
TIMEOUT_SECONDS = 300.0

TIMERS = SCALED_TIMERS | {
    "lease_seconds": 60.0,
    "margin_seconds": 20.0,
    "grace_seconds": 3.0,
    "start_seconds": 240.0,
}
"""With long leases, so that only pauses end attempts early, even on a busy machine."""

pytestmark = [pytest.mark.slow(target="pauses"), pytest.mark.timeout(300 + 300 * ROUNDS)]

Moment = Callable[[Live, str], object]
"""Whether a run has reached the moment at which to pause it."""


def queued(live: Live, run_id: str) -> bool:
    """`_pause` drains the node, so that the run stays queued."""
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


BRIEF = (saving,)
"""Moments that pass so quickly that nothing may delay the pause."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A platform whose node can also import the trainers with injected faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        with live_platform(tmp_path_factory.mktemp("platform") / "data", TIMERS) as running:
            yield running


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return live.team.upload("letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")])


@pytest.fixture(scope="module")
def undisturbed(live: Live, dataset: Dataset) -> dict[str, dict[int, float]]:
    """Curves of an undisturbed run."""
    run = live.team.wait(live.team.submit(_spec(dataset)).id, poll_seconds=0.3)
    assert run.state is RunState.SUCCEEDED, run.sentence
    return _curves(live, run)


def test_a_run_paused_at_any_moment_saves_frees_everything_and_learns_the_same(
    live: Live, dataset: Dataset, undisturbed: dict[str, dict[int, float]]
) -> None:
    draw = random.Random(SEED)
    sets = [draw.sample(MOMENTS, len(MOMENTS)) for _ in range(ROUNDS // len(MOMENTS) + 1)]
    print(f"seed {SEED}", flush=True)
    for moment in [moment for drawn in sets for moment in drawn][:ROUNDS]:
        paused = _pause(live, dataset, moment, draw.uniform(0, 0.4) * (moment not in BRIEF))
        print(
            f"{moment.__name__}: {paused.was} at step {paused.requested_at} → {paused.run.sentence}",
            flush=True,
        )
        _check_saved(paused)
        if paused.run.state is RunState.PAUSED:
            _resume_to_the_end(live, paused)
        assert _curves(live, paused.run) == undisturbed, moment.__name__
        kinds = [checkpoint.kind for checkpoint in live.team.checkpoints(paused.run.id)]
        assert kinds.count(CheckpointKind.EXPORT) == 1, "exported once"


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("trainer_ignoring_stop", "continued to its last step"),
        ("trainer_saving_late", "no checkpoint of step"),
    ],
)
def test_a_trainer_that_does_not_save_on_request_is_detected(
    live: Live, dataset: Dataset, fault: str, complaint: str
) -> None:
    with using_trainer(live.platform.folder.path / "agent", f"tests.faults.{fault}"):
        paused = _pause(live, dataset, first_step, 0.0)
    assert paused.run.state is RunState.PAUSED
    live.team.cancel(paused.run.id)
    with pytest.raises(AssertionError, match=complaint):
        _check_saved(paused)


class PausedRun(NamedTuple):
    """The result of a request to pause a run."""

    was: RunState
    requested_at: int
    """Its step at the request, as known to the platform."""
    run: Run
    """Paused, or ended before the request took effect."""
    saved: list[int]
    """Steps of its valid states."""
    reasons: list[EndCode]
    """End codes of its attempts."""
    notes: list[str]


def _pause(live: Live, dataset: Dataset, moment: Moment, late_seconds: float) -> PausedRun:
    eventually(lambda: not list(_attempts(live).glob("*")), "the previous run has left no folder", 20)
    (node,) = live.client.nodes()
    live.client.set_draining(node.id, moment is queued)
    run_id = live.team.submit(_spec(dataset)).id
    eventually(lambda: moment(live, run_id), moment.__name__, TIMEOUT_SECONDS)
    time.sleep(late_seconds)
    before = live.team.run(run_id)
    try:
        live.team.pause(run_id)
    except ApiError as refused:
        assert refused.code == "run_is_final", refused
    live.client.set_draining(node.id, False)
    over = (RunState.PAUSED, RunState.SUCCEEDED)
    eventually(lambda: live.team.run(run_id).state in over, "paused", TIMEOUT_SECONDS)
    states = [
        checkpoint
        for checkpoint in live.team.checkpoints(run_id)
        if checkpoint.kind is CheckpointKind.STATE and checkpoint.valid
    ]
    _check_everything_is_free(live)
    return PausedRun(
        was=before.state,
        requested_at=before.summary.step,
        run=live.team.run(run_id),
        saved=[state.step for state in states],
        reasons=[EndCode(mark.reason) for mark in live.team.metrics(run_id).attempts if mark.reason],
        notes=[event.message for event in live.team.events(run_id) if event.type == "note"],
    )


def _check_saved(paused: PausedRun) -> None:
    """Check that its progress is saved, and that it stopped soon."""
    assert not any("ended while saving" in note for note in paused.notes), paused.notes
    assert all(end_class(reason) is EndClass.PLANNED for reason in paused.reasons), paused.reasons
    step, early = paused.run.summary.step, paused.requested_at <= STEPS // 2
    assert not early or step < STEPS, (
        f"requested at step {paused.requested_at}, it continued to its last step"
    )
    if paused.reasons == [EndCode.STOPPED]:
        assert paused.was is not RunState.RUNNING, "it had completed steps, so there was something to save"
    elif paused.reasons:
        assert step in paused.saved, f"no checkpoint of step {step}, at which it was paused: {paused.saved}"
    else:
        assert step == 0, "it was paused before its first attempt"


def _resume_to_the_end(live: Live, paused: PausedRun) -> None:
    live.team.resume(paused.run.id)
    run = live.team.wait(paused.run.id, poll_seconds=0.3)
    assert run.state is RunState.SUCCEEDED, run.sentence
    resumed_at = live.team.metrics(run.id).attempts[-1].resume_step
    assert resumed_at == max(paused.saved, default=0)


def _check_everything_is_free(live: Live) -> None:
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
    """Folder of the agent's unfinished attempts."""
    return live.platform.folder.path / "agent" / "runs"


def _spec(dataset: Dataset) -> dict[str, object]:
    return small_spec(
        dataset,
        schedule={"steps": STEPS, "warmup_steps": 5},
        batch={"sequence_tokens": 128, "micro_sequences": 8, "global_sequences": 32},
        checkpoint={"every_steps": SAVED_EVERY_STEPS},
        validation={"every_steps": 10, "sequences": 32},
    )
