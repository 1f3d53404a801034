"""Rows F1, F3, F4 and F15 of the fault table: processes and nodes that are killed while a run trains, and runs that are cancelled."""

import os
import random
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.faults.disturbed_run import (
    LEASE_SECONDS,
    LONG_FAULTS,
    PATIENCE_SECONDS,
    SAVED_EVERY_STEPS,
    STEPS_PER_FAULT,
    DisturbedRun,
    check_complete,
    check_equal,
    long_spec,
    reference_losses,
)
from tests.faults.rows import FaultRow
from tests.live import (
    Live,
    eventually,
    finished,
    live_agent,
    marked_processes,
    rank_processes,
    release_nodes,
    small_spec,
    using_trainer,
)
from trainwright.client import TeamClient
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.api.nodes import Node
from trainwright.contracts.run_state import WITHOUT_TRAINER, RunState
from trainwright.transport.errors import ApiError

SEED = 20

Undisturbed = Callable[[int], dict[int, float]]


@pytest.fixture(scope="module")
def undisturbed(live: Live, dataset: Dataset) -> Undisturbed:
    """Loss by step of an undisturbed run with steps for so many faults."""

    def losses(faults: int) -> dict[int, float]:
        return DisturbedRun.submit(live.team, dataset, faults).losses()

    return cache(losses)


@pytest.mark.fault_row(name="F1", trials=10, long=200)
def test_a_killed_rank_costs_an_attempt_and_nothing_else(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset, undisturbed: Undisturbed
) -> None:
    run = DisturbedRun.submit(team, dataset, row.count)
    drawn = random.Random(SEED)
    for number in range(1, row.count + 1):
        before = run.wait_for_step(number, drawn)
        os.kill(rank_processes(live.platform.folder.path)[drawn.randrange(2)], signal.SIGKILL)
        killed = time.monotonic()
        with row.trial():
            run.wait_until_it_trains(before.attempt + 1)
            row.recovered(killed)
            assert run.reasons()[before.attempt - 1] == "crashed"
    with row.checking("losses"):
        check_complete(run.losses(), undisturbed(row.count))

    folder = live.platform.folder.path / "agent"
    with using_trainer(folder, "tests.faults.trainer_forgetting_momentum"):
        forgetful = DisturbedRun.submit(team, dataset, row.count)
        forgetful.wait_for_step(1, drawn)
        os.kill(rank_processes(live.platform.folder.path)[0], signal.SIGKILL)
        forgetful.wait_until_it_trains(attempt=2, beyond=STEPS_PER_FAULT)
    losses = forgetful.losses_so_far()
    with row.control():
        check_equal(losses, undisturbed(row.count))


@pytest.mark.fault_row(name="F3", trials=10, long=200)
def test_an_agent_that_is_killed_finds_its_run_again(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset
) -> None:
    undisturbed = reference_losses(team, dataset)
    run = DisturbedRun.submit(team, dataset, LONG_FAULTS)
    drawn = random.Random(SEED)
    for number in range(row.count):
        run.wait_until_it_trains(1, beyond=run.show().summary.step + drawn.randrange(SAVED_EVERY_STEPS))
        ranks = rank_processes(live.platform.folder.path)
        _kill_agent(live)
        time.sleep((0, LEASE_SECONDS / 2, 2 * LEASE_SECONDS)[number % 3])
        began = time.monotonic()
        with row.trial():
            _start_agent(live)
            row.recovered(began)
            check_untouched(run, live, ranks)
    losses = run.losses_so_far()
    with row.checking("losses"):
        check_equal(losses, undisturbed)
        assert sorted(losses) == [*range(1, max(losses) + 1)], "a step is missing"

    os.kill(ranks[0], signal.SIGKILL)
    run.wait_until_it_trains(attempt=2)
    with row.control():
        check_untouched(run, live, ranks)


def _kill_agent(live: Live) -> None:
    pid = live.platform.pid("agent")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _start_agent(live: Live) -> None:
    """Start the agent, and wait for its first heartbeat."""
    heard = _own_node(live).last_heartbeat
    live.platform.start_agent()
    eventually(lambda: _own_node(live).last_heartbeat != heard, "the agent is back", PATIENCE_SECONDS)


def _own_node(live: Live) -> Node:
    return next(node for node in live.client.nodes() if node.name == "local")


def check_untouched(run: DisturbedRun, live: Live, ranks: dict[int, int]) -> None:
    """Fail unless the run trains in its first attempt and in the same processes."""
    assert run.show().attempt == 1, f"attempt {run.show().attempt}"
    found = rank_processes(live.platform.folder.path)
    assert found == ranks, f"ranks {found} instead of {ranks}"


@pytest.mark.fault_row(name="F4", trials=10, long=100)
def test_a_run_whose_node_dies_returns_to_the_queue(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    expected = undisturbed(row.count)
    live.client.set_draining(_own_node(live).id, True)
    drawn = random.Random(SEED)
    folder = tmp_path / "node"
    try:
        with live_agent(live, folder, "other"):
            run = DisturbedRun.submit(team, dataset, row.count)
        for number in range(1, row.count + 1):
            with live_agent(live, folder, "other") as agent:
                release_nodes(live)
                before = run.wait_for_step(number, drawn)
                agent.kill()
                killed = time.monotonic()
                with row.trial():
                    _wait_until_queued(run, before.attempt)
                    row.recovered(killed)
                    assert run.reasons()[before.attempt - 1] in ("lease_expired", "supervisor_lost")
        with live_agent(live, folder, "other"):
            release_nodes(live)
            with row.checking("losses"):
                check_complete(run.losses(), expected)
            alive = DisturbedRun.submit(team, dataset, row.count)
            alive.wait_until_it_trains(attempt=1)
            with row.control():
                _wait_until_queued(alive, attempt=1)
    finally:
        live.client.set_draining(_own_node(live).id, False)


def _wait_until_queued(run: DisturbedRun, attempt: int) -> None:
    """Fail unless ``attempt`` has ended within a lease and five seconds."""

    def is_queued() -> bool:
        found = run.show()
        return found.attempt > attempt or found.state in WITHOUT_TRAINER

    eventually(is_queued, f"attempt {attempt} has ended", LEASE_SECONDS + 5)


FREED_SECONDS = 15.0


@pytest.mark.fault_row(name="F15", trials=20, long=100)
def test_a_cancelled_run_leaves_no_process_and_no_slot(
    row: FaultRow, live: Live, team: TeamClient, dataset: Dataset
) -> None:
    finished(team, team.submit(small_spec(dataset)).id, PATIENCE_SECONDS)  # prepares the data
    began = time.monotonic()
    finished(team, team.submit(small_spec(dataset)).id, PATIENCE_SECONDS)
    entire_seconds = time.monotonic() - began
    drawn = random.Random(SEED)
    ends = []
    for _ in range(row.count):
        run = team.submit(small_spec(dataset))
        time.sleep(drawn.uniform(0, entire_seconds))
        with row.trial():
            asked = time.monotonic()
            try:
                team.cancel(run.id)
            except ApiError as refused:
                assert refused.code == "run_is_final", refused
            ends.append(check_freed(live, team, run.id))
            row.recovered(asked)
    with row.checking("moments"):
        assert ends.count(RunState.CANCELLED) >= row.count / 2, ends

    run = team.submit(long_spec(dataset, LONG_FAULTS))
    with row.control():
        check_freed(live, team, run.id)


def check_freed(live: Live, team: TeamClient, run_id: str) -> RunState:
    """Fail unless the run soon has one end, no process and no slot; returns its state."""
    deadline = time.monotonic() + FREED_SECONDS
    run = finished(team, run_id, FREED_SECONDS)
    assert run.state in (RunState.CANCELLED, RunState.SUCCEEDED), run.sentence
    left_seconds = max(0.0, deadline - time.monotonic())
    eventually(lambda: not marked_processes(live.platform.folder.path), "no process is left", left_seconds)
    assert not any(quota.used for quota in team.show().quota), "slots stay in use"
    return run.state
