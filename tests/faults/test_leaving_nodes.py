"""A run that gives borrowed slots back, or is moved off its node, learns the same bit for bit as a run that nobody interrupts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import (
    SCALED_TIMERS,
    Live,
    eventually,
    finished,
    live_agent,
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

pytestmark = [pytest.mark.slow(target="faults"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A platform on which borrowing runs may be asked to leave at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINWRIGHT_MIN_RUN_MINUTES", "0")
        with live_platform(tmp_path_factory.mktemp("platform") / "data", TIMERS) as running:
            yield running


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")


@pytest.fixture(scope="module")
def data(live: Live, letters: Path) -> Dataset:
    return live.team.upload("letters", [letters])


@pytest.fixture(scope="module")
def undisturbed(live: Live, data: Dataset) -> dict[str, dict[int, float]]:
    """Curves of a run that nobody interrupts."""
    return _curves(live.team, _ended(live.team, live.team.submit(_spec(data)).id))


def test_a_preempted_run_learns_the_same_as_an_undisturbed_one(
    live: Live, letters: Path, data: Dataset, undisturbed: dict[str, dict[int, float]]
) -> None:
    crew, owners = live.team, new_team(live, "owners")
    theirs = owners.upload("letters", [letters])
    run_id = crew.submit(_spec(data)).id
    eventually(lambda: crew.run(run_id).summary.step >= 5, "it trains", 240)
    owners.set_slots("cpu", 2, guaranteed_slots=2)
    covered = owners.submit(_spec(theirs, steps=3)).id
    assert _ended(owners, covered).state is RunState.SUCCEEDED
    messages = [event.message for event in crew.events(run_id)]
    assert any(message.startswith("Pre-empted: it borrowed slots") for message in messages), messages
    run = _ended(crew, run_id)
    _check_continued(crew, run, EndCode.PREEMPTED)
    assert _curves(crew, run) == undisturbed


def test_a_run_moved_off_its_node_learns_the_same_as_an_undisturbed_one(
    live: Live, data: Dataset, undisturbed: dict[str, dict[int, float]], tmp_path: Path
) -> None:
    crew = live.team
    (own,) = live.client.nodes()
    with live_agent(live, tmp_path / "other", "other"):
        live.client.set_draining(own.id, True)
        run_id = crew.submit(_spec(data)).id
        eventually(lambda: crew.run(run_id).summary.step >= 5, "it trains", 240)
        assert crew.run(run_id).attempt_nodes == ["other"]
        live.client.set_draining(own.id, False)
        crew.move(run_id, "other")
        run = _ended(crew, run_id)
    assert run.attempt_nodes == [own.name]
    assert "Moved off other by Ada" in [event.message for event in crew.events(run_id)]
    _check_continued(crew, run, EndCode.SAVED)
    assert _curves(crew, run) == undisturbed


def _check_continued(team: TeamClient, run: Run, reason: EndCode) -> None:
    """It left its nodes once, for this reason, and continued from where it was."""
    first, second = team.metrics(run.id).attempts
    assert (first.reason, second.reason) == (reason, EndCode.FINISHED)
    assert 5 <= second.resume_step < STEPS, "it saved when it was asked"


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
