"""Row F20 of the fault table: server and agent are upgraded, one after the other, while a run trains and people submit runs.

Processes of the earlier release run its real code (`releases.py`). The upgrade follows `docs/operations.md`: the server is stopped for
its migration, and the agent is restarted.
"""

import itertools
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disturbed_run import DisturbedRun, check_equal
from tests.faults.releases import EARLIER_REVISION, REPOSITORY, Installation, unpack_earlier_release
from tests.faults.restored import restored_platform, run_server_command
from tests.faults.rows import FaultRow
from tests.faults.storm import Storm, check_acknowledged, listed_runs
from tests.live import (
    SCALED_TIMERS,
    TEAM,
    Live,
    end_runs,
    eventually,
    finished,
    live_platform,
    marked_processes,
    rank_processes,
    series,
    small_spec,
    using_trainer,
    write_letters,
)
from trainwright.client import Client
from trainwright.contracts.run_state import RunState

TIMERS = SCALED_TIMERS | {"lease_seconds": 120.0, "margin_seconds": 45.0, "start_seconds": 300.0}
"""The standard lease, which an upgrade of the server must not outlast."""

STEPS, SAVED_EVERY_STEPS = 300, 50
"""At half a second, so many steps that the run trains during the entire upgrade."""

PATIENCE_SECONDS = 600.0
REFUSED_SECONDS = 3.0
"""In which an agent repeats a claim several times whose response it cannot read."""


@dataclass(frozen=True)
class Upgraded:
    """A platform that starts with the earlier release, and the installations on its two machines."""

    live: Live
    server: Installation
    node: Installation

    def upgrade_server(self) -> None:
        """Stop the server, install, migrate, start."""
        platform = self.live.platform
        for part in ("worker", "api"):
            self._end(part)
        self.server.install(REPOSITORY)
        platform.command("migrate")
        platform.start_api()
        platform.restart("worker")

    def upgrade_agent(self) -> None:
        """Stop the agent, which leaves its supervisors alone, install, start."""
        self._end("agent")
        self.node.install(REPOSITORY)
        self.live.platform.start_agent()

    def upgrade_agent_and_end_its_runs(self) -> None:
        """An upgrade that kills all processes of the service, as systemd does by default."""
        for pid in marked_processes(self.live.platform.folder.path):
            os.kill(pid, signal.SIGKILL)
        self.upgrade_agent()

    def _end(self, part: str) -> None:
        os.kill(self.live.platform.pid(part), signal.SIGTERM)
        eventually(lambda: self.live.platform.exit_code(part) is not None, f"{part} stops", 60)

    def revision(self) -> str:
        """Of the database's tables."""
        (file,) = self.live.platform.folder.path.glob("*.sqlite3")
        with closing(sqlite3.connect(file, timeout=60)) as connection:
            return str(connection.execute("SELECT version_num FROM alembic_version").fetchone()[0])


@dataclass(frozen=True)
class TrainingRun:
    """A run that trains during an upgrade, its ranks, and the losses of the same run before."""

    live: Live
    id: str
    small: dict[str, Any]
    """The spec of a smaller run on the same data."""
    ranks: dict[int, int]
    expected: dict[int, float]

    @classmethod
    def start(cls, live: Live, folder: Path) -> "TrainingRun":
        """Upload a dataset, with its file in ``folder``; train on it twice, the second time slowly."""
        dataset = live.team.upload("letters", [write_letters(folder / "letters.jsonl")])
        spec = small_spec(
            dataset,
            schedule={"steps": STEPS, "warmup_steps": 5},
            checkpoint={"every_steps": SAVED_EVERY_STEPS},
        )
        data = live.platform.folder.path
        reference = finished(live.team, live.team.submit(spec).id, PATIENCE_SECONDS)
        assert reference.state is RunState.SUCCEEDED, reference.sentence
        with using_trainer(data / "agent", "tests.faults.trainer_with_slow_steps"):
            run_id = live.team.submit(spec).id
            eventually(lambda: live.team.run(run_id).summary.step > 0, "the run trains", PATIENCE_SECONDS)
        expected = series(live.team, reference.id, "loss")
        return cls(live, run_id, small_spec(dataset), rank_processes(data), expected)

    def wait_for_checkpoint(self) -> None:
        eventually(lambda: self.live.team.checkpoints(self.id), "a checkpoint is stored", PATIENCE_SECONDS)

    def check_untouched(self) -> None:
        """Fail unless it trains in its first attempt and in the same processes."""
        step = self.live.team.run(self.id).summary.step
        eventually(lambda: self.live.team.run(self.id).summary.step > step, "the run trains on", 60)
        found = self.live.team.run(self.id)
        assert (found.state, found.attempt) == (RunState.RUNNING, 1), found.sentence
        assert rank_processes(self.live.platform.folder.path) == self.ranks

    def check_finished(self, folder: Path) -> None:
        """Fail unless it succeeds in its first attempt, with the same losses and a model to download."""
        found = finished(self.live.team, self.id, PATIENCE_SECONDS)
        assert (found.state, found.attempt) == (RunState.SUCCEEDED, 1), found.sentence
        assert series(self.live.team, self.id, "loss") == self.expected
        self.live.team.download(self.id, folder)  # verifies every digest


ORDERS: dict[str, tuple[Callable[[Upgraded], None], ...]] = {
    "the agent first": (Upgraded.upgrade_agent, Upgraded.upgrade_server),
    "the server first": (Upgraded.upgrade_server, Upgraded.upgrade_agent),
    "the server alone": (Upgraded.upgrade_server,),
}


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The earlier release's code."""
    return unpack_earlier_release(tmp_path)


@pytest.mark.fault_row(name="F20", trials=3, long=6)
def test_an_upgrade_restarts_no_trainer_and_loses_nothing(
    row: FaultRow, earlier: Path, tmp_path: Path
) -> None:
    for number, order in enumerate(itertools.islice(itertools.cycle(ORDERS), row.count)):
        with _earlier_platform(folder := tmp_path / f"{number}", earlier) as upgraded:
            live = upgraded.live
            run = TrainingRun.start(live, tmp_path)
            with row.trial(order):
                storm = Storm(live, run.small)
                with storm.blowing():
                    storm.wait_for_another()
                    for upgrade in ORDERS[order]:
                        began = time.monotonic()
                        upgrade(upgraded)
                        storm.wait_for_another()
                        row.recovered(began)
                        run.check_untouched()
                check_acknowledged(storm, listed_runs(live.team))
                run.check_finished(folder / "model")
                check_next_run(upgraded, run.small)

    with _earlier_platform(folder := tmp_path / "control", earlier) as upgraded:
        run = TrainingRun.start(upgraded.live, tmp_path)
        upgraded.upgrade_agent_and_end_its_runs()
        with row.control():
            run.check_untouched()


@pytest.mark.fault_row(name="F20", trials=1, long=2)
def test_the_way_back_is_the_backup_of_before_the_upgrade(
    row: FaultRow, earlier: Path, tmp_path: Path
) -> None:
    """The earlier release refuses migrated tables, and restores its own backup, from which the run continues."""
    for number in range(row.count):
        with row.trial("the way back"):
            folder = tmp_path / f"{number}"
            data, backup, restored = (str(folder / name) for name in ("data", "backup", "restored"))
            with _earlier_platform(folder, earlier) as upgraded:
                run = TrainingRun.start(upgraded.live, tmp_path)
                run.wait_for_checkpoint()
                python_path = Installation(earlier).python_path
                key = upgraded.live.client.create_key("later").secret
                run_server_command("backup", backup, "--data", data, python_path=python_path)
                upgraded.upgrade_server()
                with pytest.raises(AssertionError, match="does not have this version's tables"):
                    run_server_command("link", "first-owner", "--data", data, python_path=python_path)
            shutil.rmtree(data)

            run_server_command("restore", backup, "--data", restored, python_path=python_path)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", python_path)
                with (
                    restored_platform(Path(restored), TIMERS) as platform,
                    Client(platform.url, key) as client,
                ):
                    again = DisturbedRun(client.team(TEAM), run.id)
                    again.wait_until_it_trains(attempt=2, beyond=SAVED_EVERY_STEPS)
                    check_equal(again.losses_so_far(), run.expected)
                    end_runs(again.team)


def check_next_run(upgraded: Upgraded, spec: Mapping[str, Any]) -> None:
    """Fail unless a run succeeds that is submitted next. If the agent is of the earlier release, it cannot read a job of the current
    server; once upgraded, it starts the run."""
    team = upgraded.live.team
    run_id = team.submit(spec).id
    if upgraded.node.link.resolve() != REPOSITORY:
        eventually(lambda: team.run(run_id).state is not RunState.QUEUED, "the run is placed", 60)
        time.sleep(REFUSED_SECONDS)
        upgraded.upgrade_agent()
    found = finished(team, run_id, PATIENCE_SECONDS)
    assert (found.state, found.attempt) == (RunState.SUCCEEDED, 1), found.sentence


@contextmanager
def _earlier_platform(folder: Path, release: Path) -> Iterator[Upgraded]:
    """A platform of the earlier release in ``folder``, for the block."""
    folder.mkdir()
    server, node = Installation(folder / "server"), Installation(folder / "node")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", node.python_path)
        for installation in (server, node):
            installation.install(release)
        settings = {"PYTHONPATH": server.python_path}
        with live_platform(folder / "data", TIMERS, settings=settings) as live:
            upgraded = Upgraded(live, server, node)
            assert upgraded.revision() == EARLIER_REVISION
            yield upgraded
            end_runs(live.team)
