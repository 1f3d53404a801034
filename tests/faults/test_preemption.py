"""A run that gives borrowed slots back learns the same bit for bit as a run that nobody interrupts."""

from collections.abc import Iterator

import pytest

from tests.live import (
    SCALED_TIMERS,
    Live,
    eventually,
    finished,
    live_platform,
    new_team,
    series,
    small_spec,
    write_letters,
)
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.runs import Run
from trainwright.contracts.end_codes import EndCode
from trainwright.contracts.run_state import RunState

STEPS = 40
TIMERS = SCALED_TIMERS | {
    "lease_seconds": 60.0,
    "margin_seconds": 20.0,
    "grace_seconds": 3.0,
    "start_seconds": 240.0,
}

pytestmark = [pytest.mark.slow(target="pauses"), pytest.mark.timeout(900)]


@pytest.fixture
def live(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """A platform on which borrowing runs may be asked to leave at once."""
    monkeypatch.setenv("TRAINWRIGHT_MIN_RUN_MINUTES", "0")
    with live_platform(tmp_path_factory.mktemp("platform") / "data", TIMERS) as running:
        yield running


def test_a_preempted_run_learns_the_same_as_an_undisturbed_one(
    live: Live, tmp_path_factory: pytest.TempPathFactory
) -> None:
    letters = write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")
    crew, owners = live.team, new_team(live, "owners")
    data, theirs = crew.upload("letters", [letters]), owners.upload("letters", [letters])
    undisturbed = _ended(crew, crew.submit(_spec(data)).id)
    run_id = crew.submit(_spec(data)).id
    eventually(lambda: crew.run(run_id).summary.step >= 5, "it trains", 240)
    owners.set_slots("cpu", 2, guaranteed_slots=2)
    covered = owners.submit(_spec(theirs, steps=3)).id
    assert _ended(owners, covered).state is RunState.SUCCEEDED
    messages = [event.message for event in crew.events(run_id)]
    assert any(message.startswith("Pre-empted: it borrowed slots") for message in messages), messages
    run = _ended(crew, run_id)
    reasons = [mark.reason for mark in crew.metrics(run_id).attempts]
    assert reasons == [EndCode.PREEMPTED, EndCode.FINISHED]
    resumed_at = crew.metrics(run_id).attempts[-1].resume_step
    assert 5 <= resumed_at < STEPS, "it saved when it was asked, and continued from there"
    assert _curves(crew, run) == _curves(crew, undisturbed)


def _ended(team: TeamClient, run_id: str) -> Run:
    run = finished(team, run_id, 400)
    assert run.state is RunState.SUCCEEDED, run.sentence
    return run


def _curves(team: TeamClient, run: Run) -> dict[str, dict[int, float]]:
    return {name: series(team, run.id, name) for name in ("loss", "grad_norm", "validation_loss")}


def _spec(dataset: Dataset, steps: int = STEPS) -> dict[str, object]:
    return small_spec(
        dataset,
        schedule={"steps": steps, "warmup_steps": 1},
        batch={"sequence_tokens": 128, "micro_sequences": 8, "global_sequences": 32},
        checkpoint={"every_steps": 7},
        validation={"every_steps": 10, "sequences": 32},
    )
