"""Runs on two nodes with real processes: pauses, a hang, and the death of one node, with and without a replacement. The main job
covers a run without failures."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live import (
    SCALED_TIMERS,
    Live,
    LiveAgent,
    command_of,
    eventually,
    finished,
    live_agent,
    live_platform,
    marked_processes,
    rank_processes,
    series,
    small_spec,
    write_letters,
)
from trainwright.contracts.api.datasets import Dataset
from trainwright.contracts.run_state import RunState

STEPS = 400
"""Enough that a run still trains when its first checkpoint has been seen."""

# Ten matmuls in each of two layers, each a sum over at most the 512 tokens of the batch: worst-case rounding.
FP32_NOISE = 20 * 512 * 2.0**-24
HANG_SECONDS = 3.0


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    timers = SCALED_TIMERS | {"hang_seconds": HANG_SECONDS}
    with live_platform(tmp_path_factory.mktemp("platform") / "data", timers) as running:
        yield running


@pytest.fixture(scope="module")
def other_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of the second node."""
    return tmp_path_factory.mktemp("other") / "node"


@pytest.fixture
def other(live: Live, other_data: Path) -> Iterator[LiveAgent]:
    with live_agent(live, other_data, "other") as agent:
        yield agent


@pytest.fixture(scope="module")
def dataset(live: Live, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return live.team.upload("letters", [write_letters(tmp_path_factory.mktemp("text") / "letters.jsonl")])


def spec_of(dataset: Dataset, nodes: int, **sections: Any) -> dict[str, Any]:
    resources = {"device": "cpu", "nodes": nodes, "slots_per_node": 2 // nodes}
    schedule = {"steps": STEPS, "warmup_steps": 5}
    saving = {"every_steps": 20}
    return small_spec(dataset, resources=resources, schedule=schedule, checkpoint=saving, **sections)


@pytest.fixture(scope="module")
def on_one_node(live: Live, dataset: Dataset) -> dict[int, float]:
    """Losses of the same run with both ranks on one node."""
    run = finished(live.team, live.team.submit(spec_of(dataset, nodes=1)).id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    return series(live.team, run.id, "loss")


@pytest.mark.slow(target="faults")
def test_a_stopped_rank_is_named_and_the_run_continues_in_a_new_attempt(
    live: Live, dataset: Dataset, other: LiveAgent, on_one_node: dict[int, float]
) -> None:
    run_id = live.team.submit(spec_of(dataset, nodes=2)).id
    eventually(lambda: len(live.team.checkpoints(run_id)) > 0, "a checkpoint is saved", 60)
    ((rank, pid),) = rank_processes(other.data).items()
    os.kill(pid, signal.SIGSTOP)
    run = finished(live.team, run_id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    assert run.attempt == 2
    assert series(live.team, run_id, "loss") == on_one_node
    assert [mark.reason for mark in live.team.metrics(run_id).attempts] == ["hang", "finished"]
    (told,) = [event.message for event in live.team.events(run_id) if event.state is RunState.STOPPING]
    assert re.search(rf"^Rank {rank} on other .* \d+ of the \w+ axis.* Its process is stopped\.", told), told
    logs = {log.file for log in live.team.logs(run_id) if log.attempt == 1}
    assert {"stacks.log", "stacks-1.log"} <= logs, "the stacks of both nodes are recorded"


@pytest.mark.slow(target="faults")
def test_a_run_pauses_and_resumes_on_both_nodes(
    live: Live, dataset: Dataset, other: LiveAgent, on_one_node: dict[int, float]
) -> None:
    run_id = live.team.submit(spec_of(dataset, nodes=2)).id
    eventually(lambda: live.team.run(run_id).summary.step >= 5, "steps are made", 60)
    live.team.pause(run_id)
    eventually(lambda: live.team.run(run_id).state is RunState.PAUSED, "the run is paused", 60)
    live.team.resume(run_id)
    run = finished(live.team, run_id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    assert series(live.team, run_id, "loss") == on_one_node


@pytest.mark.slow(target="faults")
def test_a_run_survives_the_death_of_a_node(
    live: Live, dataset: Dataset, other_data: Path, on_one_node: dict[int, float]
) -> None:
    with live_agent(live, other_data, "other") as node:
        run_id = live.team.submit(spec_of(dataset, nodes=2)).id
        eventually(lambda: len(live.team.checkpoints(run_id)) > 0, "a checkpoint is saved", 60)
        node.kill()
        eventually(
            lambda: live.team.run(run_id).state in (RunState.RETRY_WAIT, RunState.QUEUED), "it ends", 60
        )
        survivors = [command_of(pid) for pid in marked_processes(live.platform.folder.path)]
        assert not [command for command in survivors if "trainwright_trainer" in command]
    with live_agent(live, other_data, "other"):
        run = finished(live.team, run_id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    assert run.attempt == 2
    assert series(live.team, run_id, "loss") == on_one_node


@pytest.mark.slow(target="faults")
def test_an_elastic_run_goes_on_with_half_the_ranks_when_a_node_is_lost(
    live: Live, dataset: Dataset, other_data: Path, on_one_node: dict[int, float]
) -> None:
    spec = spec_of(dataset, nodes=2)
    spec["resources"]["min_nodes"] = 1
    with live_agent(live, other_data, "other") as node:
        run_id = live.team.submit(spec).id
        eventually(lambda: len(live.team.checkpoints(run_id)) > 0, "a checkpoint is saved", 60)
        node.kill()
    run = finished(live.team, run_id, 240)
    assert run.state is RunState.SUCCEEDED, run.sentence
    assert (run.attempt, len(run.attempt_nodes)) == (2, 1)
    told = [event.message for event in live.team.events(run_id) if event.type == "fewer_nodes"]
    assert len(told) == 1 and "1 of 2 nodes" in told[0] and "data 2 → 1" in told[0], told
    losses = series(live.team, run_id, "loss")
    resumed = live.team.metrics(run_id).attempts[1].resume_step
    before = {step: loss for step, loss in losses.items() if step <= resumed}
    assert before == {step: loss for step, loss in on_one_node.items() if step <= resumed}
    assert losses.keys() == on_one_node.keys()
    apart = max(abs(losses[step] - on_one_node[step]) for step in losses)
    # As in `tests/trainer/training/test_layouts.py`: Adam's updates differ by the noise of gradients, in a random direction; and
    # the noise of one loss, relative to ln 257 nats.
    norm = max(series(live.team, run_id, "grad_norm").values())
    updates = 3 * run.spec.optimizer.learning_rate * FP32_NOISE * (STEPS - resumed) ** 0.5 * norm
    assert 0 < apart < updates + 5.6 * FP32_NOISE / 8, (
        "the sums of one rank have another order than those of two"
    )


@pytest.mark.slow(target="faults")
def test_processes_that_are_stopped_past_their_lease_end_the_attempt_on_both_nodes(
    live: Live, dataset: Dataset, other: LiveAgent, on_one_node: dict[int, float]
) -> None:
    run_id = live.team.submit(spec_of(dataset, nodes=2)).id
    eventually(lambda: len(live.team.checkpoints(run_id)) > 0, "a checkpoint is saved", 60)
    for pid in marked_processes(other.data):
        os.kill(pid, signal.SIGSTOP)
    run = finished(live.team, run_id)
    assert run.state is RunState.SUCCEEDED, run.sentence
    assert run.attempt == 2
    assert series(live.team, run_id, "loss") == on_one_node
