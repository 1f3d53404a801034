"""A deadline counts as missed only when the agent watched it all the time."""

import time
from pathlib import Path

import pytest

from tests.agent.folders import make_attempt
from trainwright_agent.processes import boot_id, boottime
from trainwright_agent.second_killer import SecondKiller
from trainwright_agent.workspace import AttemptFolder, Deadline, DeadlineFile

ALLOWED_SECONDS = 1.0
"""Grace and slack: long beside a scheduler's delays, since a look later than half of it starts the count anew."""


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    return make_attempt(tmp_path / "node")


def set_deadline(attempt: AttemptFolder, seconds_from_now: float, boot: str | None = None) -> None:
    at = boottime() + seconds_from_now
    deadline = Deadline(boot_id=boot or boot_id(), deadline=at, kill_at=at + ALLOWED_SECONDS)
    DeadlineFile(attempt.deadline_file).write(deadline)


def seconds_until_due(killer: SecondKiller, attempt: AttemptFolder) -> float:
    began = time.monotonic()
    while not killer.is_due(attempt):
        assert time.monotonic() < began + 20
        time.sleep(0.02)
    return time.monotonic() - began


def test_a_deadline_long_past_at_the_first_look_leaves_the_supervisor_its_time(
    attempt: AttemptFolder,
) -> None:
    set_deadline(attempt, -1_000.0)
    assert seconds_until_due(SecondKiller(), attempt) >= ALLOWED_SECONDS


def test_a_look_that_came_late_starts_the_count_anew(attempt: AttemptFolder) -> None:
    set_deadline(attempt, -1.0)
    killer = SecondKiller()
    assert not killer.is_due(attempt)
    time.sleep(ALLOWED_SECONDS * 1.5)  # the agent, or the whole machine, was not there
    assert seconds_until_due(killer, attempt) >= ALLOWED_SECONDS


def test_a_renewal_in_between_and_another_boot_count_nothing(attempt: AttemptFolder) -> None:
    set_deadline(attempt, -1.0)
    killer = SecondKiller()
    seconds_until_due(killer, attempt)
    set_deadline(attempt, 1_000.0)
    assert not killer.is_due(attempt)
    set_deadline(attempt, -1.0)
    assert not killer.is_due(attempt)
    set_deadline(attempt, -1_000.0, boot="another")
    assert not killer.is_due(attempt)
