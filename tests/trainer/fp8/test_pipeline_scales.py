"""Delayed FP8 scaling in a pipeline:
a step enters the history once, even if its backward pass is split in two."""

from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import one_step, start
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute import scaling
from trainwright_trainer.fp8.compute.scaling import AmaxHistory
from trainwright_trainer.process.job_file import read_job

HISTORY_STEPS, STEPS = 4, 6
"""Instead of 16, so that scales come from the history after a few steps."""

SECTIONS: dict[str, Any] = {
    "model": {"layers": 6, "width": 64, "heads": 4, "kv_heads": 4, "tied_embeddings": False},
    "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 4},
    # Never reached: a norm that is summed over ranks differs in its last bit.
    "optimizer": {"learning_rate": 3e-3, "clip_norm": 1e3},
    "precision": {
        "kind": "fp8",
        "compile": "off",
        "fp8": {"level": "O2", "scaling": "tensor", "amax": "delayed"},
    },
}


class RankResult(NamedTuple):
    """What a rank reports after the last step."""

    losses: list[float]
    state: dict[str, Tensor]
    """On rank 0: values of all layers, in the order of the full model."""


def learn(mesh: Mesh, job_file: Path, fault: bool = False) -> RankResult:
    scaling.HISTORY_STEPS = HISTORY_STEPS
    if fault:
        _remember_twice()
    training = start(mesh, job_file)
    losses = [one_step(training, step).loss for step in range(1, STEPS + 1)]
    kept = training.engine.updater.state()
    return RankResult(losses, {item.name: item.tensor for item in kept if item.name.startswith("fp8.")})


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> RankResult:
    (result,) = on_mesh(Degrees(), learn, write_job(tmp_path_factory.mktemp("whole"), data, **SECTIONS))
    assert isinstance(result, RankResult)
    return result


def in_stages(folder: Path, data: Path, schedule: str, fault: bool = False) -> RankResult:
    layers = {"1f1b": (3, 3), "zbv": (1, 2, 2, 1)}[schedule]
    parallelism = {"pipeline": 2, "schedule": schedule, "stages": layers}
    job_file = write_job(folder, data, 2, parallelism=parallelism, **SECTIONS)
    results: list[RankResult] = on_mesh(read_job(job_file).spec.degrees, learn, job_file, fault)
    assert results[0].losses == results[1].losses
    return results[0]


def _agree(one: RankResult, other: RankResult) -> bool:
    assert one.state.keys() == other.state.keys()
    same = all(torch.equal(one.state[name], other.state[name]) for name in one.state)
    return same and one.losses == other.losses


@pytest.mark.parametrize("schedule", partly_slow(["1f1b", "zbv"], ["zbv"]))
def test_stages_remember_each_step_once_and_what_one_process_does(
    schedule: str, tmp_path: Path, data: Path, whole: RankResult
) -> None:
    assert bool((whole.state["fp8.scale"] > 0).all()), "scales are remembered ones"
    result = in_stages(tmp_path, data, schedule)
    assert _agree(result, whole)
    history_HL2 = result.state["fp8.history"]
    assert len(history_HL2) == HISTORY_STEPS and bool((history_HL2 > 0).all())
    assert not any(torch.equal(one, other) for one, other in pairwise(history_HL2))


def _remember_twice() -> None:
    """A history that each half of a backward pass would enter."""
    right = AmaxHistory.end_step

    def twice(self: AmaxHistory, ranks: Any) -> None:
        right(self, ranks)
        right(self, ranks)

    AmaxHistory.end_step = twice


def test_a_step_that_is_remembered_twice_is_seen(tmp_path: Path, data: Path, whole: RankResult) -> None:
    result = in_stages(tmp_path, data, "zbv", fault=True)
    assert not _agree(result, whole)
