"""FP8 state of weights sharded over tensor and pipeline axes has the same bits as in one process.

Gradients are given and equal in every layout, so that only the results computed from them are compared:
scales shared by the shards of a weight, stochastic rounding, norms, and the written state.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.selection import partly_slow
from tests.trainer.fault_injection import inject_fault, own
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import Slice, full_slice
from trainwright_trainer.fp8.compute.weight import Weight
from trainwright_trainer.fp8.state import optimizer, updater
from trainwright_trainer.fp8.state.optimizer import make_element_map
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build

STEPS = 3
NARROW = {"layers": 2, "width": 64, "heads": 4, "kv_heads": 2, "feed_forward": 160}
WIDE = {"layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "feed_forward": 256}
"""Halves of its rows are blocks of 128."""


class TensorShard(NamedTuple):
    name: str
    box: Slice
    tensor: Tensor


class RankResult(NamedTuple):
    """What one rank reports after a few updates."""

    shards: list[TensorShard]
    norms: list[float]
    numbers: dict[str, float]
    non_finite_tensor: str | None


def _update(mesh: Mesh, job_file: Path, fault: str = "none") -> RankResult:
    with FAULTS[fault]():
        training = build(read_job(job_file), job_file, mesh)
        fp8_updater = training.engine.updater
        assert isinstance(fp8_updater, FP8Updater)
        weights = _weights(fp8_updater, training.engine.model)
        norms = []
        for step in range(1, STEPS + 1):
            fp8_updater.begin_step(1e-2)
            _set_gradients(fp8_updater, weights, step, mesh.tensor.ranks)
            norms.append(float(fp8_updater.grad_norm()))
            fp8_updater.update(torch.tensor(norms[-1]))
        numbers = fp8_updater.metrics(STEPS)
        tensor_shards = [TensorShard(item.name, item.box, _bits(item.tensor)) for item in fp8_updater.state()]
        fp8_updater.begin_step(1e-2)
        spoilt = "layers.1.feed_forward.down.weight"
        _set_gradients(fp8_updater, weights, STEPS + 1, mesh.tensor.ranks, spoilt)
        norms.append(float(fp8_updater.grad_norm()))
        return RankResult(tensor_shards, norms, numbers, fp8_updater.non_finite_tensor())


def _weights(fp8_updater: FP8Updater, model: torch.nn.Module) -> dict[str, Weight]:
    """Weights by canonical name. A weight used in two places has two names and is listed under the first."""
    by_handle = {id(module.handle): module for module in model.modules() if isinstance(module, Weight)}
    names = {slot.name for slot in fp8_updater.layout.slots}
    found = {}
    for name, handle in model.named_parameters(remove_duplicate=False):
        canonical = name.replace(".stored_weight.handle", ".weight")
        if canonical in names:
            found.setdefault(canonical, by_handle[id(handle)])
    assert set(found) == names
    return found


def _set_gradients(
    fp8_updater: FP8Updater, weights: dict[str, Weight], step: int, tensor_ranks: int, spoilt: str = ""
) -> None:
    """Draw gradients of the full model and give each rank those of its shards. Data ranks get equal ones, and tensor
    ranks equal parts of those of weights that they replicate."""
    boxes = {slot.name: slot.box for slot in fp8_updater.layout.slots}
    for name, weight in weights.items():
        box = boxes[name]
        draw = torch.Generator().manual_seed(sum(name.encode()) + step)
        gradient = (
            torch.randn(box.full_shape, generator=draw) * torch.rand(box.full_shape, generator=draw) ** 4
        )
        if name == spoilt:
            gradient.view(-1)[0] = torch.inf  # in the first shard only
        weight.handle.grad = gradient[box.slices].to(weight.handle.dtype).contiguous()
        if box.shape == box.full_shape:
            weight.handle.grad /= tensor_ranks  # a power of two: nothing is rounded
    fp8_updater.mark_ready(list(weights))
    fp8_updater.wait_for_gradients()


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().view(torch.uint8) if tensor.itemsize == 1 else tensor.detach().clone()


def assembled(results: list[RankResult]) -> dict[str, Tensor]:
    """Assemble the state written by all ranks, each element once.
    Block scales are named after their tensor."""
    wholes: dict[str, Tensor] = {}
    filled: dict[str, Tensor] = {}
    for shard in (shard for result in results for shard in result.shards):
        if "@" in shard.name:
            continue
        into = wholes.setdefault(shard.name, torch.zeros(shard.box.full_shape, dtype=shard.tensor.dtype))
        into[shard.box.slices] = shard.tensor
        filled.setdefault(shard.name, torch.zeros(shard.box.full_shape, dtype=torch.int32))[
            shard.box.slices
        ] += 1
    assert all((count == 1).all() for count in filled.values())
    return wholes


@contextmanager
def _patched(owner: object, name: str, value: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


def _as_if_unsharded(boxes: list[Slice], device: torch.device) -> Any:
    return make_element_map([full_slice(box.shape) for box in boxes], device)


def _max_of_own(self: Axis, tensor: Tensor) -> Tensor:
    return tensor


class _CountsAll(updater.FP8Gradients):
    def __init__(self, *arguments: Any) -> None:
        *others, _, partial_gradients = arguments
        super().__init__(*others, (), partial_gradients)


FAULTS: dict[str, Any] = {
    "none": nullcontext,
    "dice of slices": lambda: _patched(optimizer, "make_element_map", _as_if_unsharded),
    "scales of slices": lambda: _patched(Axis, "all_reduce_max", _max_of_own),
    "parts of gradients": lambda: inject_fault(Axis, "all_reduce", own, "sum_over_ranks"),
    "norms counted twice": lambda: _patched(updater, "FP8Gradients", _CountsAll),
}


def make_job(
    folder: Path, data: Path, degrees: Degrees, recipe: dict[str, Any], model: dict[str, Any] = NARROW
) -> Path:
    job_file = write_job(
        folder,
        data,
        degrees.ranks,
        model=model,
        batch={"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 8},
        optimizer={
            "clip_norm": None
        },  # the norm is summed in another order, which would change all later bits
        precision={"kind": "fp8", "fp8": recipe | {"observe_every_steps": 1}},
        parallelism={"tensor": degrees.tensor, "pipeline": degrees.pipeline},
    )
    output_folder(job_file).mkdir()
    return job_file


def fed(
    folder: Path, data: Path, degrees: Degrees, recipe: dict[str, Any], **options: Any
) -> list[RankResult]:
    fault = options.pop("fault", "none")
    results: list[RankResult] = on_mesh(
        degrees, _update, make_job(folder, data, degrees, recipe, **options), fault
    )
    return results


CASES: list[tuple[dict[str, Any], dict[str, Any], Degrees]] = [
    ({"level": "O1"}, NARROW, Degrees(tensor=2)),
    ({"level": "O2"}, NARROW, Degrees(tensor=2)),
    ({"level": "O2", "amax": "delayed", "bf16_last_layers": 1}, NARROW, Degrees(pipeline=2)),
    ({"level": "O3"}, NARROW, Degrees(pipeline=2, tensor=2)),
    ({"level": "O3", "moments": "block"}, WIDE, Degrees(replicas=2, tensor=2)),
]


@pytest.mark.parametrize(("recipe", "model", "degrees"), partly_slow(CASES, [CASES[1], CASES[3]]), ids=str)
def test_shards_have_the_same_bits_as_one_process(
    tmp_path: Path, data: Path, recipe: dict[str, Any], model: dict[str, Any], degrees: Degrees
) -> None:
    # Sums over data ranks are rounded twice, so the full model is trained on the same number of data ranks.
    alone = fed(tmp_path / "whole", data, Degrees(replicas=degrees.replicas), recipe, model=model)
    cut = fed(tmp_path / "cut", data, degrees, recipe, model=model)
    expected, found = assembled(alone), assembled(cut)
    is_block_scale = recipe.get("moments") == "block"
    for name, tensor in expected.items():
        if is_block_scale and "_scale." in name and name not in found:
            continue  # sharded weights have their block scales in each slice
        assert torch.equal(found[name], tensor), name
    for item in cut:
        # Squares of rows, summed in another order: a few thousand non-negative float32 numbers.
        assert item.norms[:STEPS] == pytest.approx(alone[0].norms[:STEPS], rel=1e-5)
        assert item.norms == cut[0].norms
        assert item.norms[STEPS] == torch.inf
        assert item.non_finite_tensor == "layers.1.feed_forward.down.weight:gradient"
    numbers = cut[0].numbers
    assert numbers.keys() == alone[0].numbers.keys()
    of_tensors = [name for name in numbers if "/" in name]
    assert {name: numbers[name] for name in of_tensors} == {
        name: alone[0].numbers[name] for name in of_tensors
    }


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    "fault",
    ["dice of slices", "scales of slices", "parts of gradients", "norms counted twice"],
)
def test_an_injected_fault_changes_the_bits(tmp_path: Path, data: Path, fault: str) -> None:
    """Negative controls of the test above."""
    alone = fed(tmp_path / "whole", data, Degrees(), {"level": "O2"})
    cut = fed(tmp_path / "cut", data, Degrees(tensor=2), {"level": "O2"}, fault=fault)
    expected, found = assembled(alone), assembled(cut)
    equal_bits = all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    equal_norms = cut[0].norms[:STEPS] == pytest.approx(alone[0].norms[:STEPS], rel=1e-5)
    assert not (equal_bits and equal_norms)
