"""Delayed FP8 scaling over several ranks: a step is recorded once, even if its backward pass is split in two,
and with the largest amax of any rank that has the layer."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.fault_injection import inject_fault, own
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import one_step, start
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute import scaling
from trainwright_trainer.fp8.compute.formats import E4M3, E5M2, scale_for
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
        "fp8": {"level": "O2", "scaling": "tensor", "amax": "delayed", "observe_every_steps": 1},
    },
}


class RankResult(NamedTuple):
    """What a rank reports after the last step."""

    losses: list[float]
    state: dict[str, Tensor]
    """On rank 0: values of all layers, in the order of the full model."""

    amaxes: list[dict[str, float]]
    """The amaxes of the inputs and output gradients of all layers that this rank knows, by step."""

    scales: list[dict[str, float]]
    """The scales used in each step."""


def learn(mesh: Mesh, job_file: Path, fault: str = "none") -> RankResult:
    scaling.HISTORY_STEPS = HISTORY_STEPS
    with FAULTS[fault](mesh):
        training = start(mesh, job_file)
        updater = training.engine.updater
        losses, metrics = [], []
        for step in range(1, STEPS + 1):
            losses.append(one_step(training, step).loss)
            metrics.append(updater.metrics(step))
        state = {item.name: item.tensor for item in updater.state() if item.name.startswith("fp8.")}
    amaxes, scales = ([_of_layers(values, kind) for values in metrics] for kind in ("amax", "scale"))
    return RankResult(losses, state, amaxes, scales)


def _of_layers(metrics: dict[str, float], kind: str) -> dict[str, float]:
    prefix = f"fp8_{kind}/"
    return {
        name.removeprefix(prefix): number
        for name, number in metrics.items()
        if name.startswith(prefix) and name.endswith((":input", ":output_gradient"))
    }


def _record_twice(mesh: Mesh) -> AbstractContextManager[object]:
    """Each half of a backward pass records its amax in the history."""
    right = AmaxHistory.end_step

    def twice(self: AmaxHistory, ranks: Axis) -> None:
        right(self, ranks)
        right(self, ranks)

    return patch.object(AmaxHistory, "end_step", twice)


def _over(axis: Axis) -> AbstractContextManager[object]:
    """Maxima over the ranks of ``axis`` instead of all that have the layer."""
    right = AmaxHistory.collect
    return patch.object(AmaxHistory, "collect", lambda self, _: right(self, axis))


FAULTS: dict[str, Callable[[Mesh], AbstractContextManager[object]]] = {
    "none": lambda mesh: nullcontext(),
    "a step is recorded twice": _record_twice,
    "each rank's own amax": lambda mesh: inject_fault(
        Axis, "all_reduce_max", own, within="AmaxHistory.collect"
    ),
    "the amax of data ranks only": lambda mesh: _over(mesh.data),
    "the amax of tensor ranks only": lambda mesh: _over(mesh.tensor),
}


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> RankResult:
    (result,) = on_mesh(Degrees(), learn, write_job(tmp_path_factory.mktemp("whole"), data, **SECTIONS))
    assert isinstance(result, RankResult)
    return result


def in_stages(folder: Path, data: Path, schedule: str, fault: str = "none") -> RankResult:
    layers = {"1f1b": (3, 3), "zbv": (1, 2, 2, 1)}[schedule]
    results = in_layout(folder, data, 2, {"pipeline": 2, "schedule": schedule, "stages": layers}, fault)
    assert results[0].losses == results[1].losses
    return results[0]


def in_layout(
    folder: Path, data: Path, ranks: int, parallelism: dict[str, Any], fault: str = "none"
) -> list[RankResult]:
    job_file = write_job(folder, data, ranks, parallelism=parallelism, **SECTIONS)
    results: list[RankResult] = on_mesh(read_job(job_file).spec.degrees, learn, job_file, fault)
    return results


def _agree(one: RankResult, other: RankResult) -> bool:
    assert one.state.keys() == other.state.keys()
    same = all(torch.equal(one.state[name], other.state[name]) for name in one.state)
    return same and one.losses == other.losses


@pytest.mark.parametrize("schedule", partly_slow(["1f1b", "zbv"], []))
def test_stages_record_each_step_once_with_the_amaxes_of_one_process(
    schedule: str, tmp_path: Path, data: Path, whole: RankResult
) -> None:
    assert bool((whole.state["fp8.scale"] > 0).all()), "scales come from the history"
    result = in_stages(tmp_path, data, schedule)
    assert _agree(result, whole)
    history_HL2 = result.state["fp8.history"]
    assert len(history_HL2) == HISTORY_STEPS and bool((history_HL2 > 0).all())
    assert not any(torch.equal(one, other) for one, other in pairwise(history_HL2))


@pytest.mark.slow(target="layouts")
def test_a_step_that_is_recorded_twice_is_detected(tmp_path: Path, data: Path, whole: RankResult) -> None:
    result = in_stages(tmp_path, data, "zbv", "a step is recorded twice")
    assert not _agree(result, whole)


LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "data 2": (2, {}),
    "tensor 2": (2, {"tensor": 2}),
    "data 2, tensor 2": (4, {"tensor": 2}),
}


def complaints(results: list[RankResult], whole: RankResult, same_bits: bool) -> list[str]:
    """How the amaxes and scales of ranks differ from each other, from their rule, and from one process.

    Args:
        same_bits: whether ranks compute each micro batch as one process does, so that before the first update
            the amaxes are equal bit for bit. Otherwise matmuls are rounded in parts: by at most 1 of 8 bits
            in each of the few in sequence in a layer, and their sum again.
    """
    found = []
    first = results[0]
    if any(item.amaxes != first.amaxes or item.scales != first.scales for item in results):
        found.append("ranks differ")
    for item in results:
        bound = 0.0 if same_bits else 2.0**-4
        off = [name for name, amax in item.amaxes[0].items() if abs(amax / whole.amaxes[0][name] - 1) > bound]
        found += [f"not the largest amax of {name}" for name in off]
    for step in range(HISTORY_STEPS, STEPS):
        for name, scale in first.scales[step].items():
            largest = max(amaxes[name] for amaxes in first.amaxes[step - HISTORY_STEPS : step])
            if scale != scale_for(torch.tensor(largest), E4M3 if name.endswith(":input") else E5M2):
                found.append(f"not the scale of the largest amax of {name}")
    return found


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_scales_follow_from_the_largest_amax_of_all_ranks(
    layout: str, tmp_path: Path, data: Path, whole: RankResult
) -> None:
    results = in_layout(tmp_path, data, *LAYOUTS[layout])
    assert results[0].amaxes[0].keys() == whole.amaxes[0].keys() != set()
    assert complaints(results, whole, same_bits=layout == "data 2") == []


PLANTED = [
    ("each rank's own amax", "data 2"),
    ("each rank's own amax", "tensor 2"),
    ("the amax of tensor ranks only", "data 2, tensor 2"),
    ("the amax of data ranks only", "data 2, tensor 2"),
]


@pytest.mark.parametrize(("fault", "layout"), partly_slow(PLANTED, []))
def test_an_amax_that_is_not_the_largest_is_detected(
    fault: str, layout: str, tmp_path: Path, data: Path, whole: RankResult
) -> None:
    results = in_layout(tmp_path, data, *LAYOUTS[layout], fault)
    assert complaints(results, whole, same_bits=layout == "data 2")
