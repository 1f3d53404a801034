"""A deadline counts as missed only if the agent has watched it without a gap."""

import time
from pathlib import Path

import pytest

from tests.agent.folders import make_attempt
from trainwright_agent.processes import boot_id, boottime
from trainwright_agent.watchdog import Watchdog
from trainwright_agent.workspace import AttemptFolder, Deadline, DeadlineFile

ALLOWED_SECONDS = 1.0
"""Grace and slack: long compared with scheduling delays, since a gap of half of it restarts the count."""


@pytest.fixture
def attempt(tmp_path: Path) -> AttemptFolder:
    return make_attempt(tmp_path / "node")


def set_deadline(attempt: AttemptFolder, seconds_from_now: float, boot: str | None = None) -> None:
    at = boottime() + seconds_from_now
    deadline = Deadline(boot_id=boot or boot_id(), deadline=at, kill_at=at + ALLOWED_SECONDS)
    DeadlineFile(attempt.deadline_file).write(deadline)


def seconds_until_due(watchdog: Watchdog, attempt: AttemptFolder) -> float:
    began = time.monotonic()
    while not watchdog.is_due(attempt):
        assert time.monotonic() < began + 20
        time.sleep(0.02)
    return time.monotonic() - began


def test_a_supervisor_long_past_its_deadline_still_gets_its_grace_period(
    attempt: AttemptFolder,
) -> None:
    set_deadline(attempt, -1_000.0)
    assert seconds_until_due(Watchdog(), attempt) >= ALLOWED_SECONDS


def test_a_late_check_restarts_the_count(attempt: AttemptFolder) -> None:
    set_deadline(attempt, -1.0)
    watchdog = Watchdog()
    assert not watchdog.is_due(attempt)
    time.sleep(ALLOWED_SECONDS * 1.5)  # the agent, or the entire machine, was suspended
    assert seconds_until_due(watchdog, attempt) >= ALLOWED_SECONDS


def test_a_renewal_or_a_reboot_resets_the_count(attempt: AttemptFolder) -> None:
    set_deadline(attempt, -1.0)
    watchdog = Watchdog()
    seconds_until_due(watchdog, attempt)
    set_deadline(attempt, 1_000.0)
    assert not watchdog.is_due(attempt)
    set_deadline(attempt, -1.0)
    assert not watchdog.is_due(attempt)
    set_deadline(attempt, -1_000.0, boot="another")
    assert not watchdog.is_due(attempt)
