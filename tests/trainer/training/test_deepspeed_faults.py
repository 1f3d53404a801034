"""Collectives and settings of DeepSpeed, each left out or wrong: every fault is detected.

DeepSpeed communicates through its own backend, not through our axes. The following collectives carry values:
sums of gradients (stages 0 to 2) or of their shards (3), sums of squares for the norm, gathers of updated
weights (1 to 3), and sums that give a checkpoint its full tensors. It also broadcasts initial weights, which
are equal on all ranks, and at stage 3 lists that it compares.
"""

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from torch import Tensor

from tests.trainer.fault_injection import DONE, inject_fault, own
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import BASE, Learned, complaints, learn
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training import deepspeed_engine
from trainwright_trainer.training.deepspeed_engine import DeepSpeedUpdater

pytestmark = [pytest.mark.timeout(360), pytest.mark.slow(target="layouts")]


class Fault(NamedTuple):
    stage: int
    plant: Callable[[], AbstractContextManager[object]]


def _backend() -> Any:
    """DeepSpeed's backend, which a rank has imported by the time it learns."""
    return importlib.import_module("deepspeed.comm.torch").TorchBackend


def _collective(
    name: str, wrong: Callable[..., Any], within: str = ""
) -> Callable[[], AbstractContextManager[object]]:
    return lambda: inject_fault(_backend(), name, wrong, within)


def _keeps(self: Any, tensor: Tensor, *_: Any, **__: Any) -> Any:
    return DONE


def _keeps_its_own_part(self: Any, output_tensor: Tensor, input_tensor: Tensor, *_: Any, **__: Any) -> Any:
    """Leave the others' shards unchanged:
    at stages 1 and 2 both tensors are views of the weights before the update."""
    return DONE


def _repeats_its_own_part(self: Any, output_tensor: Tensor, input_tensor: Tensor, *_: Any, **__: Any) -> Any:
    output_tensor.copy_(input_tensor.repeat(output_tensor.numel() // input_tensor.numel()))
    return DONE


def _takes_its_own_part(
    self: Any, output_tensor: Tensor, input_tensor: Tensor, *_: Any, group: Any = None, **__: Any
) -> Any:
    output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])
    return DONE


def _with_settings(changed: dict[str, Any]) -> Callable[[], AbstractContextManager[object]]:
    """Change DeepSpeed's settings."""
    right = deepspeed_engine.deepspeed_settings
    return lambda: patch.object(
        deepspeed_engine, "deepspeed_settings", lambda *given: right(*given) | changed
    )


FAULTS: dict[str, Fault] = {
    "stage 0: gradients are not summed": Fault(
        0, _collective("all_reduce", _keeps, "DeepSpeedEngine._compute_gradients")
    ),
    "stage 0: the loss is a rank's own": Fault(
        0, lambda: inject_fault(Axis, "all_reduce", own, "DeepSpeedEngine.step")
    ),
    "stage 0: the validation loss is a rank's own": Fault(
        0, lambda: inject_fault(Axis, "all_reduce", own, "DeepSpeedEngine.mean_loss")
    ),
    "stage 1: updated weights are not gathered": Fault(
        1, _collective("all_gather_into_tensor", _keeps_its_own_part)
    ),
    "stage 1: a checkpoint has one rank's shards": Fault(
        1, _collective("all_reduce", _keeps, "DeepSpeedUpdater.state")
    ),
    "stage 2: gradients are not summed": Fault(
        2, _collective("all_reduce", _keeps, "DeepSpeedEngine._compute_gradients")
    ),
    "stage 2: the norm is that of one rank's shard": Fault(
        2, _collective("all_reduce", _keeps, "DeepSpeedUpdater.wait_for_gradients")
    ),
    "stage 2: updated weights are not gathered": Fault(
        2, _collective("all_gather_into_tensor", _keeps_its_own_part)
    ),
    "stage 2: losses are not averaged": Fault(2, lambda: patch.object(Axis, "all_reduce", own)),
    "stage 2: gradients are summed": Fault(2, _with_settings({"gradient_allreduce_op": "sum"})),
    "stage 2: nothing is clipped": Fault(2, _with_settings({"gradient_clipping": 0.0})),
    "stage 2: every micro batch is the last": Fault(
        2,
        lambda: patch.object(
            DeepSpeedUpdater, "begin_step", lambda self, rate: self.begin_last_micro_batch()
        ),
    ),
    "stage 3: weights are not gathered": Fault(
        3, _collective("all_gather_into_tensor", _repeats_its_own_part)
    ),
    "stage 3: gradients are not scattered": Fault(
        3, _collective("reduce_scatter_tensor", _takes_its_own_part)
    ),
    "stage 3: the norm is that of one rank's shard": Fault(
        3, _collective("all_reduce", _keeps, "DeepSpeedUpdater.wait_for_gradients")
    ),
}
"""Faults by what goes wrong."""

SOUND = "none, after all of them"


def _learn_each(mesh: Mesh, jobs: dict[str, Path]) -> dict[str, Learned]:
    """Train with one fault after the other, on ranks that take seconds to import DeepSpeed."""
    deepspeed_engine.import_deepspeed(mesh.device)
    found = {}
    for fault, job_file in jobs.items():
        with FAULTS[fault].plant():
            found[fault] = learn(make_mesh(mesh.rank, read_job(job_file).spec.degrees, mesh.device), job_file)
    last = read_job(job_file).spec.degrees
    found[SOUND] = learn(make_mesh(mesh.rank, last, mesh.device), job_file)
    return found


@pytest.fixture(scope="module")
def write(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def write(ranks: int, parallelism: dict[str, Any]) -> Path:
        return write_job(tmp_path_factory.mktemp("job"), data, ranks, **BASE, parallelism=parallelism)

    return write


@pytest.fixture(scope="module")
def one_process(write: Callable[..., Path]) -> Learned:
    """What the native engine learns in one process."""
    (result,) = on_mesh(Degrees(), learn, write(1, {}))
    assert isinstance(result, Learned)
    return result


@pytest.fixture(scope="module")
def learned(write: Callable[..., Path]) -> dict[str, list[Learned]]:
    """What two ranks learn with each fault."""
    jobs = {
        name: write(2, {"engine": "deepspeed", "zero_stage": fault.stage}) for name, fault in FAULTS.items()
    }
    by_rank = on_mesh(Degrees(replicas=2), _learn_each, jobs)
    return {fault: [item[fault] for item in by_rank] for fault in [*jobs, SOUND]}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_step_is_detected(
    fault: str, learned: dict[str, list[Learned]], one_process: Learned
) -> None:
    """``test_deepspeed`` covers these stages without a fault."""
    try:
        found = complaints(learned[fault], one_process)
    except AssertionError as error:  # the ranks' shards do not fill the full tensors
        found = [str(error)]
    assert found


def test_faults_are_removed_after_each_training(
    learned: dict[str, list[Learned]], one_process: Learned
) -> None:
    assert not complaints(learned[SOUND], one_process)
