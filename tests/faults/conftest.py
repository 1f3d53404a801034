"""Fixtures of the tests of faults: a live platform for each file, its team, and a dataset."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.faults.disturbed_run import TIMERS
from tests.live import Live, end_runs, live_platform, write_letters
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset


@pytest.fixture(scope="module")
def timers() -> Mapping[str, float]:
    """The platform's timers; a file may have its own."""
    return TIMERS


@pytest.fixture(scope="module")
def live(timers: Mapping[str, float], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A platform whose node can also import the trainers with injected faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        with live_platform(tmp_path_factory.mktemp("platform") / "data", timers) as running:
            yield running


@pytest.fixture
def team(live: Live) -> Iterator[TeamClient]:
    """The team, whose runs end with the test."""
    yield live.team
    end_runs(live.team)


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return live.team.upload("letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")])
