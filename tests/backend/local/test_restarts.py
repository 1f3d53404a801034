"""Processes of a local platform that exit are restarted with growing pauses, and reported while they do not work."""

import json
import os
import secrets
import signal
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.live import SCALED_TIMERS, TEAM, eventually, live_environment, write_letters
from trainwright.client import Client
from trainwright.contracts.api.datasets import Dataset, PreparationState
from trainwright.contracts.api.people import OneTimeLink
from trainwright_backend.core.component_status import read_part_problems, write_part_problems
from trainwright_backend.local.data_folder import DataFolder, PlatformError
from trainwright_backend.local.platform import Platform, bind_socket
from trainwright_backend.local.restarts import MAX_PAUSE_SECONDS, STABLE_SECONDS, Restarts


@dataclass
class Parts:
    """Processes that exit when a test says so."""

    dead: set[str] = field(default_factory=set)
    starts: list[str] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    logs: Path = Path("/nonexistent")
    error: Exception | None = None

    def dead_parts(self) -> list[str]:
        return sorted(self.dead)

    def exit_code(self, name: str) -> int | None:
        return 3

    def restart(self, name: str) -> None:
        self.starts.append(name)
        if self.error is not None:
            raise self.error
        self.dead.discard(name)

    def log_file(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def report_problems(self, problems: dict[str, str]) -> None:
        self.problems = problems


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_pauses_double_up_to_a_minute_and_other_processes_keep_running(tmp_path: Path) -> None:
    parts, clock, told = Parts(logs=tmp_path), Clock(), list[str]()
    (tmp_path / "worker.log").write_text("out of paper")
    restarts = Restarts(parts, told.append, clock)
    began, waits = 0.0, list[float]()
    for _ in range(10):
        parts.dead.add("worker")
        before = len(parts.starts)
        began = clock.now
        while len(parts.starts) == before:
            restarts.check()
            clock.now += 0.25
        waits.append(clock.now - began)
    assert waits[0] <= 1.5 and all(later >= earlier for earlier, later in pairwise(waits))
    assert max(waits) <= MAX_PAUSE_SECONDS + 1 and waits[-1] >= MAX_PAUSE_SECONDS
    assert set(parts.starts) == {"worker"}
    assert (
        "10 times in a row" in parts.problems["worker"]
        and "Datasets are not prepared" in parts.problems["worker"]
    )
    assert sum("out of paper" in line for line in told) == 1
    exits = [line for line in told if "exited" in line]
    assert len(exits) == 10 and all(line.endswith(f"Its log: {tmp_path / 'worker.log'}") for line in exits)


def test_a_process_is_reported_until_it_has_run_for_a_while_and_then_counts_from_zero() -> None:
    parts, clock, told = Parts(), Clock(), list[str]()
    restarts = Restarts(parts, told.append, clock)
    parts.dead.add("agent")
    restarts.check()
    clock.now = 2.0
    restarts.check()
    assert parts.starts == ["agent"] and list(parts.problems) == ["agent"]
    clock.now += STABLE_SECONDS - 1
    restarts.check()
    assert list(parts.problems) == ["agent"], "it may exit again"
    clock.now += 2
    restarts.check()
    assert parts.problems == {} and told[-1] == "agent works again."
    parts.dead.add("agent")
    restarts.check()
    assert "in a row" not in parts.problems["agent"]


def test_a_process_that_cannot_be_started_is_tried_again_later() -> None:
    parts, clock = Parts(dead={"api"}, error=PlatformError("port 8000 cannot be used\nmore")), Clock()
    restarts = Restarts(parts, lambda _: None, clock)
    for _ in range(40):
        restarts.check()
        clock.now += 0.5
    assert 3 <= len(parts.starts) <= 6
    assert "could not be started (port 8000 cannot be used)" in parts.problems["api"]
    parts.error = None
    clock.now += MAX_PAUSE_SECONDS
    restarts.check()
    assert parts.dead == set()


def test_problems_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    assert read_part_problems(file) == {}
    write_part_problems(file, {"worker": "exited"})
    assert read_part_problems(file) == {"worker": "exited"}


def health(platform: Platform) -> dict[str, Any]:
    with urlopen(f"{platform.url}/api/v1/health", timeout=10) as response:
        found: dict[str, Any] = json.load(response)
    return found


def broken_parts(platform: Platform) -> set[str]:
    return {problem["part"] for problem in health(platform)["problems"]}


@pytest.mark.slow(target="faults")
def test_data_is_prepared_without_the_broker_and_every_process_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process is killed in turn, as the kernel does when memory runs out. The others keep running."""
    monkeypatch.setattr("trainwright_backend.local.restarts.STABLE_SECONDS", 3.0)
    environment = live_environment(SCALED_TIMERS)
    with Platform(DataFolder.acquire(tmp_path), bind_socket("127.0.0.1", 0), environment) as platform:
        told = list[str]()
        restarts = Restarts(platform, told.append)

        def checked(condition: Any) -> bool:
            restarts.check()
            return bool(condition())

        token = platform.command("link", "first-owner").strip().rsplit("/", 1)[-1]
        with Client(platform.url) as client:
            password = secrets.token_urlsafe(16)
            link = OneTimeLink(token=token, name="Ada", email="a@b.c", password=password, team=TEAM)
            client.use_link(link)
            assert health(platform)["status"] == "ok"
            os.kill(platform.pid("broker"), signal.SIGKILL)
            eventually(lambda: broken_parts(platform) == {"broker"}, "health reports the broker", 30)
            assert health(platform)["status"] == "degraded"
            team = client.team(TEAM)
            letters = write_letters(tmp_path / "letters.jsonl")
            dataset = team.upload("letters", [letters])
            eventually(
                lambda: is_prepared(team.dataset(dataset.id)), "data is prepared without the broker", 60
            )
            assert broken_parts(platform) == {"broker"}, "nothing has restarted it"
            eventually(lambda: checked(lambda: answers_ok(platform)), "the broker is restarted", 60)

            def kill(name: str) -> None:
                before = {part: platform.pid(part) for part in ("broker", "api", "worker", "agent")}
                os.kill(before[name], signal.SIGKILL)
                os.waitid(os.P_PID, before[name], os.WEXITED | os.WNOWAIT)
                eventually(
                    lambda: checked(lambda: platform.pid(name) != before[name]), f"{name} is restarted", 30
                )
                eventually(lambda: checked(lambda: answers_ok(platform)), f"{name} works again", 90)
                after = {part: platform.pid(part) for part in before}
                assert {part for part in before if after[part] != before[part]} == {name}

            for name in ("worker", "agent", "api"):
                kill(name)
                assert any(line.startswith(f"{name} exited with code -9") for line in told)


def is_prepared(dataset: Dataset) -> bool:
    return all(one.state is PreparationState.READY for one in dataset.versions[0].preparations) and bool(
        dataset.versions[0].preparations
    )


def answers_ok(platform: Platform) -> bool:
    try:
        return health(platform)["status"] == "ok"
    except OSError:
        return False
