"""Ranks that compute longer than others with the same layers are scored and reported once; noise is not reported."""

import time
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.jobs import events
from tests.trainer.process.test_several_nodes import jobs_of_two_nodes
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.series import RANK_SERIES, STRAGGLER_SERIES
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.observe.rank_timings import EVERY_STEPS
from trainwright_trainer.observe.step_timer import Timing
from trainwright_trainer.observe.stragglers import SLOW_FRACTION, WINDOW, Stragglers
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build
from trainwright_trainer.training.loop import train

LINE = [(0, 1, 2, 3)]


def times(*work: float, collectives: float = 5.0) -> dict[str, float]:
    """Series values of ranks that compute for ``work`` seconds, half of it forward."""
    found = {}
    for rank, seconds in enumerate(work):
        parts = dict.fromkeys(Timing, 0.0)
        parts |= {Timing.FORWARD: seconds / 2, Timing.BACKWARD: seconds / 2, Timing.COLLECTIVES: collectives}
        found |= {f"{RANK_SERIES}/{rank}:{timing}": spent for timing, spent in parts.items()}
    return found


def reports(stragglers: Stragglers, measurements: list[dict[str, float]]) -> list[tuple[int, int]]:
    """Measurement and rank of each report."""
    return [
        (number, rank)
        for number, measured in enumerate(measurements, start=1)
        for rank, _ in stragglers.new_ones(stragglers.observe(measured))
    ]


def test_a_rank_that_remains_a_tenth_slower_is_reported_once() -> None:
    assert reports(Stragglers(LINE), [times(1, 1, 1.12, 1)] * 40) == [(WINDOW, 2)]


def test_it_is_reported_again_after_it_has_recovered() -> None:
    slow, even = times(1, 1, 1, 1.3), times(1, 1, 1, 1)
    found = reports(Stragglers(LINE), [slow] * 12 + [even] * 12 + [slow] * 12)
    assert [rank for _, rank in found] == [3, 3]


def test_the_score_is_how_much_longer_a_rank_computes() -> None:
    stragglers = Stragglers(LINE)
    for _ in range(WINDOW - 1):
        assert stragglers.observe(times(1, 1, 1.5, 1)) == {}, "too few measurements"
    scores = stragglers.observe(times(1, 1, 1.5, 1))
    assert scores == pytest.approx({0: 0.0, 1: 0.0, 2: 0.5, 3: 0.0})


def test_single_slow_steps_and_noise_are_not_reported() -> None:
    drawn = np.random.default_rng(0)
    noisy = [times(*drawn.normal(1.0, 0.03, 4)) for _ in range(300)]
    noisy[50:54] = [times(1, 9, 1, 1)] * 4  # fewer than half of a window
    assert reports(Stragglers(LINE), noisy) == []


def test_ranks_of_other_stages_are_not_compared() -> None:
    assert reports(Stragglers([(0, 1), (2, 3)]), [times(1, 1, 2, 2)] * 20) == []
    assert reports(Stragglers([(0, 1), (2, 3)]), [times(1, 1, 2, 2.4)] * 20) == [(WINDOW, 3)]


def test_a_stage_with_one_rank_has_no_score() -> None:
    assert Stragglers([(0,), (1,)]).observe(times(1, 2)) == {}


def test_ranks_that_vary_much_are_not_slow() -> None:
    """On a machine with more ranks than cores every rank is the slower one now and then."""
    drawn = np.random.default_rng(0)
    busy = [times(*drawn.lognormal(0.0, 0.3, 2)) for _ in range(100)]
    stragglers = Stragglers([(0, 1)])
    scores = [stragglers.observe(measured) for measured in busy]
    assert max(score.get(rank, 0) for score in scores for rank in (0, 1)) > SLOW_FRACTION, "the median alone"
    assert reports(Stragglers([(0, 1)]), busy) == []


def test_ranks_on_the_cores_of_one_node_are_compared_with_other_nodes_only() -> None:
    assert reports(Stragglers([(0, 1)], ranks_sharing_cores=2), [times(1, 1.3)] * 20) == []
    slow_node = Stragglers([(0, 1, 2, 3)], ranks_sharing_cores=2)
    assert reports(slow_node, [times(1.0, 1.2, 1.4, 1.5)] * 20) == [(WINDOW, 2), (WINDOW, 3)]


def _train_with_slow_node(mesh: Mesh, job_files: list[Path]) -> None:
    """Train on two nodes of one rank each; in the steps that are measured, rank 1 waits in its forward passes."""
    own = range(mesh.rank, mesh.rank + 1)
    job_file = job_files[mesh.rank]
    training = build(read_job(job_file), job_file, make_mesh(mesh.rank, mesh.degrees, mesh.device, own))

    def wait(*_: object) -> None:
        if mesh.rank == 1 and (training.step + 1) % EVERY_STEPS == 0:
            time.sleep(0.2)

    training.engine.model.get_submodule("layers.0").register_forward_pre_hook(wait)
    train(training)


@pytest.mark.slow(target="layouts")
def test_a_training_reports_its_slow_node(tmp_path: Path, data: Path) -> None:
    rarely = {"every_steps": 1_000}
    schedule = {"steps": (WINDOW + 1) * EVERY_STEPS, "warmup_steps": 4}
    job_files = jobs_of_two_nodes(tmp_path, data, schedule=schedule, validation=rarely, checkpoint=rarely)
    for job_file in job_files:
        output_folder(job_file).mkdir()
    on_mesh(Degrees(replicas=2), _train_with_slow_node, job_files)
    notes = [note["message"] for note in events(job_files[0], "note")]
    slow = [message for message in notes if "has computed longer" in message]
    assert len(slow) == 1 and ": rank 1 (node 2 of the run) has computed longer" in slow[0]
    last = events(job_files[0], "step")[-1]["values"]
    assert last[f"{STRAGGLER_SERIES}/1"] >= SLOW_FRACTION > 0 > last[f"{STRAGGLER_SERIES}/0"]
