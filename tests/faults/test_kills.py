"""SIGKILL of each process of a run: the run succeeds, and its losses equal those of an undisturbed run bit for bit."""

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.live import (
    Live,
    command_of,
    eventually,
    finished,
    live_platform,
    marked_processes,
    parent_of,
    series,
    small_spec,
    write_letters,
)
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import RunState

pytestmark = pytest.mark.slow(target="faults")

STEPS = 80
KILL_AT_STEP = 25
"""After the checkpoint of step 20 and before the one of step 30."""


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_platform(tmp_path_factory.mktemp("platform") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return live.team.upload("letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")])


@pytest.fixture(scope="module")
def undisturbed(live: Live, dataset: Dataset) -> dict[int, float]:
    """Loss by step of an undisturbed run."""
    run = finished(live.team, live.team.submit(_spec(dataset)).id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    return series(live.team, run.id, "loss")


@pytest.mark.parametrize(
    "victim",
    [
        "rank 0",
        "rank 1",
        "launcher",
        "supervisor",
    ],
)
def test_a_killed_process_costs_an_attempt_and_nothing_else(
    victim: str, live: Live, dataset: Dataset, undisturbed: dict[int, float]
) -> None:
    run = live.team.submit(_spec(dataset))
    eventually(lambda: live.team.run(run.id).summary.step >= KILL_AT_STEP, "the run is training", 60)
    os.kill(VICTIMS[victim](live), signal.SIGKILL)

    run = finished(live.team, run.id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    assert run.attempt == 2
    assert series(live.team, run.id, "loss") == undisturbed
    reasons = [mark.reason for mark in live.team.metrics(run.id).attempts]
    assert reasons == ["supervisor_lost" if victim == "supervisor" else "crashed", "finished"]
    assert live.team.metrics(run.id).attempts[1].resume_step > 0, "it resumed from a checkpoint"
    eventually(lambda: not marked_processes(live.platform.folder.path), "no process is left", 10)


def test_a_killed_agent_costs_nothing(live: Live, dataset: Dataset, undisturbed: dict[int, float]) -> None:
    run = live.team.submit(_spec(dataset))
    eventually(lambda: live.team.run(run.id).summary.step >= KILL_AT_STEP, "the run is training", 60)
    trainers = set(marked_processes(live.platform.folder.path))
    os.kill(live.platform.pid("agent"), signal.SIGKILL)
    os.waitpid(live.platform.pid("agent"), 0)
    assert trainers <= set(marked_processes(live.platform.folder.path)), (
        "the trainer survives without an agent"
    )
    live.platform.start_agent()

    run = finished(live.team, run.id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    assert run.attempt == 1
    assert series(live.team, run.id, "loss") == undisturbed
    eventually(lambda: not marked_processes(live.platform.folder.path), "no process is left", 10)


def _spec(dataset: Dataset) -> dict[str, object]:
    batch = {"sequence_tokens": 128, "micro_sequences": 8, "global_sequences": 32}
    return small_spec(dataset, schedule={"steps": STEPS, "warmup_steps": 5}, batch=batch)


def _supervisor(live: Live) -> int:
    return _the_only(live, lambda pid: _has_its_command(pid) and not _has_its_command(parent_of(pid)))


def _has_its_command(pid: int) -> bool:
    """Whether it is a supervisor, or the guard that a supervisor has forked."""
    return "trainwright_agent.supervisor.main" in command_of(pid)


def _launcher(live: Live) -> int:
    supervisor = _supervisor(live)
    return _the_only(live, lambda pid: parent_of(pid) == supervisor and not _has_its_command(pid))


def _rank(live: Live, rank: int) -> int:
    """The child of the launcher whose log says in its first line that it is this rank."""
    launcher = _launcher(live)
    first_lines = [path.open().readline() for path in _folder(live).rglob(f"out/logs/rank-{rank}.log")]
    logged = {int(line.rpartition("pid ")[2]) for line in first_lines if line.startswith(f"rank {rank} of 2")}
    return _the_only(live, lambda pid: pid in logged and parent_of(pid) == launcher)


def _the_only(live: Live, is_match: Callable[[int], bool]) -> int:
    (pid,) = [pid for pid in marked_processes(_folder(live)) if is_match(pid)]
    return pid


def _folder(live: Live) -> Path:
    return live.platform.folder.path


VICTIMS: dict[str, Callable[[Live], int]] = {
    "rank 0": partial(_rank, rank=0),
    "rank 1": partial(_rank, rank=1),
    "launcher": _launcher,
    "supervisor": _supervisor,
}
