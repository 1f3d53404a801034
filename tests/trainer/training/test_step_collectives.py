"""Sums and maxima that combine a step's metrics over ranks: leaving one out is detected.

Faults in collectives of gradients, weights and activations show in what is learned, and are injected where
that is compared (``tests/parity/faults.py`` and ``test_zero_faults``, ``test_tensor_parallel`` and
``test_faults`` of ``tests/trainer/parallel``). The collectives tested here carry reported values: they change
no weight, or only its clipping.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.fault_injection import inject_fault, own
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.training.test_layouts import FP8_NOISE
from tests.trainer.zero_trainings import (
    BASE,
    EPSILON,
    GRADIENT_BOUND,
    LEARNING_RATE,
    one_step,
    start,
    validation_loss,
)
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.process.job_file import read_job


class RankResult(NamedTuple):
    """What one rank reports after one step."""

    loss: float
    norm: float
    validation: float
    numbers: dict[str, float]


def learn(mesh: Mesh, job_file: Path, faults: list[str]) -> dict[str | None, RankResult | str]:
    """Run one step without a fault, and one with each; some faults end in an error text."""
    found: dict[str | None, RankResult | str] = {None: _one_step(mesh, job_file)}
    for fault in faults:
        with FAULTS[fault].plant():
            try:
                found[fault] = _one_step(mesh, job_file)
            except ZeroDivisionError as error:
                found[fault] = str(error)
    assert _one_step(mesh, job_file) == found[None], "all faults must be removed"
    return found


def _one_step(mesh: Mesh, job_file: Path) -> RankResult:
    training = start(mesh, job_file)
    step = one_step(training, 1)
    numbers = training.engine.updater.metrics(1)
    return RankResult(step.loss, step.grad_norm, validation_loss(training), numbers)


def fp8(level: str) -> dict[str, Any]:
    precision = {"kind": "fp8", "compile": "off", "fp8": {"level": level, "scaling": "tensor"}}
    return {"precision": precision, "model": {"width": 64, "kv_heads": 4}}


LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "one process": (1, {}),
    "data 2": (2, {}),
    "data 2, tensor 2": (4, {"parallelism": {"tensor": 2}}),
    "pipeline 2": (2, {"parallelism": {"pipeline": 2}}),
    "O3, one process": (1, fp8("O3")),
    "O3, data 2": (2, fp8("O3")),
    "O3, tensor 2": (2, fp8("O3") | {"parallelism": {"tensor": 2}}),
    "O3, pipeline 2": (2, fp8("O3") | {"parallelism": {"pipeline": 2}}),
}
TOGETHER = [layout for layout in LAYOUTS if "process" not in layout]
LEFT_TO_LAYOUTS = ("O3, data 2", "O3, tensor 2", "O3, pipeline 2")
"""``make test`` has every axis in float32."""


class Fault(NamedTuple):
    layout: str
    plant: Callable[[], AbstractContextManager[object]]


def _own_in(function: str, method: str = "all_reduce") -> Callable[[], AbstractContextManager[object]]:
    return lambda: inject_fault(Axis, method, own, function)


_receive = Axis.receive


def _receive_nothing(axis: Axis, tensor: Tensor, member: int) -> None:
    _receive(axis, tensor, member)
    tensor.zero_()


FAULTS: dict[str, Fault] = {
    "the loss is a data rank's own": Fault("data 2", _own_in("TorchEngine._sum_identical")),
    "the loss is a tensor group's own": Fault("data 2, tensor 2", _own_in("TorchEngine._sum_identical")),
    "the loss stays with the last stage": Fault("pipeline 2", _own_in("TorchEngine._sum_identical")),
    "the validation loss is a data rank's own": Fault("data 2", _own_in("TorchEngine.mean_loss")),
    "the validation loss stays with the last stage": Fault("pipeline 2", _own_in("TorchEngine.mean_loss")),
    "no activation reaches the last stage in validation": Fault(
        "pipeline 2",
        lambda: inject_fault(Axis, "receive", _receive_nothing, "PipelineForwardBackward.sum_losses"),
    ),
    "FP8: the norm is a data rank's own": Fault("O3, data 2", _own_in("FP8Gradients.norm")),
    "FP8: the norm is a tensor rank's own": Fault("O3, tensor 2", _own_in("FP8Gradients.norm")),
    "FP8: the norm is one stage's own": Fault("O3, pipeline 2", _own_in("FP8Gradients.norm")),
    "FP8: a stage reports metrics of its own weights only": Fault(
        "O3, pipeline 2", _own_in("ParameterIndex.all_gather")
    ),
    "FP8: the largest inputs are a rank's own": Fault(
        "O3, data 2", _own_in("AmaxHistory.collect", "all_reduce_max")
    ),
    "FP8: the largest gradients are a rank's own": Fault(
        "O3, data 2", _own_in("FP8Gradients._reduce", "all_reduce_max")
    ),
    "FP8: the largest sums are a rank's own": Fault(
        "O3, data 2", _own_in("FP8Gradients._sum_over_ranks", "all_reduce_max")
    ),
    "FP8: the largest weights are known to owners only": Fault(
        "O3, data 2", _own_in("FP8Updater._sync_weights", "all_reduce_max")
    ),
    "FP8: rounding metrics are those of one rank": Fault(
        "O3, data 2", _own_in("FP8Updater._rounding_metrics")
    ),
}


@pytest.fixture(scope="module")
def results(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str | None, list[RankResult | str]]]:
    """What the ranks of a layout report, by fault."""

    @cache
    def of(layout: str) -> dict[str | None, list[RankResult | str]]:
        ranks, sections = LAYOUTS[layout]
        spec = {name: BASE.get(name, {}) | sections.get(name, {}) for name in BASE | sections}
        path = write_job(tmp_path_factory.mktemp("job"), data, ranks, **spec)
        faults = [name for name, fault in FAULTS.items() if fault.layout == layout]
        by_rank = on_mesh(read_job(path).spec.degrees, learn, path, faults)
        return {fault: [item[fault] for item in by_rank] for fault in by_rank[0]}

    return of


def complaints(results: list[RankResult | str], wanted: RankResult | str, noise: float) -> list[str]:
    """How ranks differ from each other, or from one process by more than ``noise``,
    the relative error of a gradient."""
    assert isinstance(wanted, RankResult)
    found = [result for result in results if isinstance(result, str)]
    if found:
        return found
    if any(result != results[0] for result in results):
        found.append("ranks differ")
    # As derived in ``zero_trainings.complaints``, for one step.
    shift = 2 * LEARNING_RATE / EPSILON * noise
    rounding = max(512 * 2.0**-24, noise / 8) * wanted.loss
    for item in results:
        assert isinstance(item, RankResult)
        if not abs(item.norm / wanted.norm - 1) <= noise:
            found.append(f"the norm is {item.norm}, not {wanted.norm}")
        if not abs(item.loss - wanted.loss) <= rounding:
            found.append(f"the loss is {item.loss}, not {wanted.loss}")
        if not abs(item.validation - wanted.validation) <= shift + rounding:
            found.append(f"the validation loss is {item.validation}, not {wanted.validation}")
        if item.numbers.keys() != wanted.numbers.keys():
            found.append("the metrics have other names")
        if item.numbers.get("fp8_smallest_headroom") != wanted.numbers.get("fp8_smallest_headroom"):
            found.append("the smallest headroom differs")
    return found


def _noise(layout: str) -> float:
    return FP8_NOISE if layout.startswith("O3") else GRADIENT_BOUND


def _alone(layout: str) -> str:
    return "O3, one process" if layout.startswith("O3") else "one process"


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", TOGETHER)
def test_all_ranks_report_the_metrics_of_one_process(layout: str, results: Callable[..., Any]) -> None:
    (wanted,) = results(_alone(layout))[None]
    assert not complaints(results(layout)[None], wanted, _noise(layout))


@pytest.mark.parametrize(
    "fault",
    partly_slow(FAULTS, [name for name, fault in FAULTS.items() if fault.layout not in LEFT_TO_LAYOUTS]),
)
def test_a_sum_that_is_left_out_is_detected(fault: str, results: Callable[..., Any]) -> None:
    layout = FAULTS[fault].layout
    (wanted,) = results(_alone(layout))[None]
    assert complaints(results(layout)[fault], wanted, _noise(layout))
