"""Long queues of runs on 1 to 64 simulated nodes: all of them get their nodes, and small runs do not starve large ones."""

import random
from pathlib import Path

import pytest

from tests.simulated_nodes import GPUS_PER_NODE, SimulatedNodes, SimulatedRun, random_run
from trainwright_backend.scheduling import placement_round

LONGEST = 4
"""Steps of the longest run."""
LARGEST = 64
"""Nodes of the largest run."""
WAITING = 20
"""Small runs that wait at any time."""


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize(("nodes", "runs"), [(80, 100), (1_000, 2_000)])
def test_all_runs_of_a_long_queue_get_their_nodes(tmp_path: Path, nodes: int, runs: int) -> None:
    dice = random.Random(1)
    simulated = SimulatedNodes.create(tmp_path, nodes, teams=10)
    for team_id in simulated.teams:
        simulated.submit(team_id, [random_run(dice, LONGEST) for _ in range(runs // 10)])
    assert max(run.nodes for run in simulated.runs.values()) == LARGEST
    while simulated.waiting:
        simulated.place()
        assert simulated.occupied, f"deadlock: {len(simulated.waiting)} runs wait for idle nodes"
        simulated.pass_step()


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize("nodes", [80, 1_000])
def test_a_run_on_64_nodes_starts_while_small_runs_keep_coming(tmp_path: Path, nodes: int) -> None:
    """It is first in line, since its team used nothing. So it starts when the longest of the present runs has ended."""
    assert steps_until_start(tmp_path, nodes, most=3 * LONGEST) <= LONGEST


@pytest.mark.slow(target="databases")
def test_without_reserved_nodes_it_would_starve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_round, "nodes_to_reserve", lambda _: [])
    assert steps_until_start(tmp_path, nodes=80, most=3 * LONGEST) > 2 * LONGEST


def steps_until_start(folder: Path, nodes: int, most: int) -> int:
    """The steps that a run on 64 nodes waits behind runs that occupy all nodes, and before others that are submitted in each step."""
    dice = random.Random(2)
    simulated = SimulatedNodes.create(folder, nodes, teams=3)
    *others, patient = simulated.teams
    small = LARGEST // 16 if nodes > 100 else 2

    def fill_queue() -> None:
        while len(simulated.waiting) < WAITING:
            team_id = dice.choice(others)
            run = SimulatedRun(dice.randint(1, small), GPUS_PER_NODE, dice.randint(1, LONGEST))
            simulated.submit(team_id, [run])

    fill_queue()
    while simulated.place():
        fill_queue()
    (large,) = simulated.submit(patient, [SimulatedRun(LARGEST, GPUS_PER_NODE, 1)])
    begin = simulated.step
    while large in simulated.waiting and simulated.step - begin < most:
        simulated.pass_step()
        fill_queue()
        simulated.place()
    return simulated.step - begin
