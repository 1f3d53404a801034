"""Tensor ranks that communicate in chunks get the unchunked result, in an order that overlaps transfer and
matmuls.

Inputs to single layers are integers so small that bfloat16 represents all of their sums, at most 128,
exactly: the bits are equal in any order of summation.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.fp8.compute.test_linear import hold, layer_of
from tests.trainer.jobs import write_job
from tests.trainer.parallel.tensor.test_fp8_gather import BATCH, MODEL, OPTIMIZER, learn_fp8
from tests.trainer.ranks import on_mesh
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.precision_spec import ScalingKind
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.linear import FP8Linear
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.dense import DenseLinear, DenseMatmuls
from trainwright_trainer.linear.weight_casts import WeightCasts
from trainwright_trainer.parallel.tensor import chunked_collectives
from trainwright_trainer.parallel.tensor.chunked_collectives import (
    Chunking,
    all_gather_matmul,
    matmul_reduce_scatter,
    matmuls_reduce_scatter,
)
from trainwright_trainer.parallel.tensor.fp8_gather import GatheringInputCast
from trainwright_trainer.parallel.tensor.sequence_parallel import all_gather, reduce_scatter

B, T, K, N = 2, 16, 32, 16

Tensors = dict[str, Tensor]


def pass_through(mesh: Mesh, kind: str, number: int, later: bool = False) -> Tensors:
    """Results of both passes of layers that read one input, of one layer whose output is summed, and of two whose
    outputs are summed; unchunked for 0 chunks."""
    results: Tensors = {}
    for half in (_gathered, _summed, _summed_twice):
        deferred = DeferredWeightGradients() if later else None
        made = half(mesh.tensor, kind, number, deferred)
        results |= {f"{half.__name__}: {key}": tensor.detach() for key, tensor in made.items()}
    return results


def _gathered(axis: Axis, kind: str, number: int, deferred: DeferredWeightGradients | None) -> Tensors:
    x = (_whole_numbers(B, T // axis.ranks, K, seed=axis.rank) * 4**axis.rank).requires_grad_()
    layers = [_layer(kind, seed, deferred) for seed in (10, 11, 12)]
    if kind != "bf16":
        shared = GatheringInputCast(layers[0].input_cast, axis)
        for layer in layers:
            layer.input_cast = shared
    if number:
        outs = all_gather_matmul(x, layers, Chunking(axis, number))
    else:
        whole = all_gather(x, axis) if kind == "bf16" else shared.all_gather(x)
        outs = [layer(whole) for layer in layers]
    gradients = [_whole_numbers(B, T, N, seed=20 + index + 3 * axis.rank) for index in range(3)]
    torch.autograd.backward(outs, gradients)
    return {f"y {index}": out for index, out in enumerate(outs)} | _learned(x, layers, deferred)


def _summed(axis: Axis, kind: str, number: int, deferred: DeferredWeightGradients | None) -> Tensors:
    x = _whole_numbers(B, T, K, seed=30 + axis.rank).requires_grad_()
    layer = _layer(kind, 40 + axis.rank, deferred)
    out = (
        matmul_reduce_scatter(x, layer, Chunking(axis, number)) if number else reduce_scatter(layer(x), axis)
    )
    out.backward(_whole_numbers(*out.shape, seed=50 + axis.rank) * 4**axis.rank)
    return {"y": out} | _learned(x, [layer], deferred)


def _summed_twice(axis: Axis, kind: str, number: int, deferred: DeferredWeightGradients | None) -> Tensors:
    inputs = [_whole_numbers(B, T, K, seed=60 + axis.rank + 2 * index).requires_grad_() for index in (0, 1)]
    layers = [_layer(kind, 70 + axis.rank + 2 * index, deferred) for index in (0, 1)]
    if number:
        out = matmuls_reduce_scatter(inputs, layers, Chunking(axis, number))
    else:
        out = reduce_scatter(layers[0](inputs[0]) + layers[1](inputs[1]), axis)
    out.backward(_whole_numbers(*out.shape, seed=80 + axis.rank) * 4**axis.rank)
    assert inputs[1].grad is not None
    return {"y": out, "dx 1": inputs[1].grad} | _learned(inputs[0], layers, deferred)


def _whole_numbers(*shape: int, seed: int) -> Tensor:
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def _layer(kind: str, seed: int, deferred: DeferredWeightGradients | None) -> Any:
    weight = _whole_numbers(N, K, seed=seed)
    if kind == "bf16":
        layer = nn.Linear(K, N, bias=False, dtype=torch.bfloat16)
        layer.weight.data.copy_(weight)
        return layer if deferred is None else DenseLinear(layer, deferred)
    low = layer_of(hold(weight.float()), ScalingKind.TENSOR)
    low.deferred = deferred
    if kind == "fp8, delayed":
        low.input_cast.delayed.fill_(2.0**-5)
        low.output_gradient_scale.fill_(2.0**-9)
    return low


def _learned(x: Tensor, layers: list[Any], deferred: DeferredWeightGradients | None) -> Tensors:
    if deferred is not None:
        deferred.take()()
    assert x.grad is not None
    results = {"dx": x.grad}
    for index, layer in enumerate(layers):
        if isinstance(layer, FP8Linear):
            results[f"dW {index}"] = layer.stored_weight.handle.grad
            results[f"amax of x {index}"] = layer.input_cast.amax
            results[f"amax of dy {index}"] = layer.output_gradient_probe.grad
        else:
            results[f"dW {index}"] = layer.weight.grad
    return results


def pass_through_all(mesh: Mesh, kind: str) -> list[Tensors]:
    results = [pass_through(mesh, kind, number) for number in (0, 1, 2, 4)]
    return [*results, pass_through(mesh, kind, 2, later=True)]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("kind", ["bf16", "fp8", "fp8, delayed"])
def test_chunked_results_equal_unchunked_ones(kind: str) -> None:
    """Outputs, gradients (including weight gradients that zero-bubble schedules defer), and amaxes."""
    for wanted, *results in on_mesh(Degrees(tensor=2), pass_through_all, kind):
        assert all(tensor.any() for tensor in wanted.values())
        assert [_differing(result, wanted) for result in results] == [[]] * 4


def _differing(results: Tensors, wanted: Tensors) -> list[str]:
    assert results.keys() == wanted.keys()
    return [name for name in wanted if not torch.equal(results[name], wanted[name])]


def pass_without_gradients(mesh: Mesh) -> list[list[Tensor]]:
    """Results of a layer whose cast was made again after its weight changed, and of one that reuses no cast."""
    layers = DenseLinear(nn.Linear(K, N, bias=False)), nn.Linear(K, N, bias=False)
    casts = WeightCasts(layers[:1], torch.bfloat16)
    casts.refresh()
    x, chunking = _whole_numbers(B, T, K, seed=91), Chunking(mesh.tensor, 2)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        for layer in layers:
            layer.weight.copy_(_whole_numbers(N, K, seed=90))
        casts.refresh()
        return [
            [*all_gather_matmul(x, [layer], chunking), matmul_reduce_scatter(x, layer, chunking)]
            for layer in layers
        ]


@pytest.mark.slow(target="layouts")
def test_without_gradients_casts_are_multiplied_as_autocast_does() -> None:
    """A validation follows an update, after which casts are made again."""
    for kept, plain in on_mesh(Degrees(tensor=2), pass_without_gradients):
        assert [torch.equal(one, other) for one, other in zip(kept, plain, strict=True)] == [True, True]


def _swapped(given: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: reversed(list(given(*arguments)))


FAULTS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "chunks arrive in another order": (chunked_collectives, "_gathered_chunks", _swapped),
    "one chunk is multiplied each time": (
        chunked_collectives,
        "_rows",
        lambda right: lambda whole, _, cut: right(whole, 0, cut),
    ),
    "sums are concatenated in another order": (
        chunked_collectives,
        "_wait_all",
        lambda right: lambda coming, cut: right(coming[::-1], cut),
    ),
    "a rank's own amax of the gradient": (Axis, "all_reduce_max", lambda right: lambda self, tensor: tensor),
}


def pass_through_with_faults(mesh: Mesh) -> dict[str, list[str]]:
    wanted, found = pass_through(mesh, "fp8", 0), {}
    for fault, (where, name, wrong) in FAULTS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, wrong(getattr(where, name)))
            found[fault] = _differing(pass_through(mesh, "fp8", 2), wanted)
    return found


@pytest.mark.slow(target="layouts")
def test_a_chunk_that_is_left_out_or_misplaced_is_detected() -> None:
    results = on_mesh(Degrees(tensor=2), pass_through_with_faults)
    for fault in FAULTS:
        assert any(result[fault] for result in results), fault


def order(mesh: Mesh) -> list[list[str]]:
    """Order of a rank's operations, forward and backward, in three chunks."""
    heard: list[str] = []

    def hearing(name: str, right: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            heard.append(name)
            return right(*given)

        return called

    def multiplying(right: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: hearing("matmul", right(*given))

    order = []
    with pytest.MonkeyPatch.context() as patch:
        for name, verb in (
            ("all_gather_async", "gather"),
            ("reduce_scatter_async", "scatter"),
            ("wait_tensor", "wait"),
        ):
            patch.setattr(Axis, name, hearing(verb, getattr(Axis, name)))
        for name in ("output", "input_gradient"):
            patch.setattr(DenseMatmuls, name, multiplying(getattr(DenseMatmuls, name)))
        right = DenseMatmuls.weight_gradient
        patch.setattr(DenseMatmuls, "weight_gradient", hearing("weight", right))
        x = torch.zeros(1, 6, K, requires_grad=True)
        layer, cut = nn.Linear(K, N, bias=False), Chunking(mesh.tensor, 3)
        for forward in (
            lambda: all_gather_matmul(x, [layer], cut)[0],
            lambda: matmul_reduce_scatter(x, layer, cut),
        ):
            out = forward()
            order.append(heard.copy())
            heard.clear()
            out.sum().backward()
            order.append(heard.copy())
            heard.clear()
    return order


@pytest.mark.slow(target="layouts")
def test_one_chunk_is_sent_while_another_is_multiplied() -> None:
    gathers = ["gather", *["gather", "wait", "matmul"] * 2, "wait", "matmul"]
    scatters = ["matmul", "scatter"] * 3
    for results in on_mesh(Degrees(tensor=2), order):
        assert results == [
            gathers,
            [*scatters, "weight", *["wait"] * 3],
            [*scatters, *["wait"] * 3],
            [*gathers, "weight"],
        ]


@pytest.fixture(scope="module")
def learned(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[float]]:
    """What a training reports, computed once."""

    @cache
    def train(kind: str, degrees: Degrees, chunks: int = 1, recompute: str = "none") -> list[float]:
        low = {"kind": "fp8", "fp8": {"level": kind, "scaling": "tensor"}}
        layout = {
            "tensor": degrees.tensor,
            "tensor_chunks": chunks,
            "pipeline": degrees.pipeline,
        }
        job = write_job(
            tmp_path_factory.mktemp("job"),
            data,
            degrees.ranks,
            model=MODEL | {"layers": 4},
            batch=BATCH,
            optimizer=OPTIMIZER,
            precision={"compile": "off"} | ({"kind": kind} if kind == "bf16" else low),
            memory={"recompute": recompute},
            parallelism=layout | ({"schedule": "zbv"} if degrees.pipeline > 1 else {}),
        )
        first, *others = on_mesh(degrees, learn_fp8, job)
        assert all(other == first for other in others)
        assert isinstance(first, list)
        return first

    return train


CASES = {
    "bf16, some recomputed": ("bf16", Degrees(tensor=2), 2, "selective"),
    "bf16, 4 ranks": ("bf16", Degrees(tensor=4), 2),
    "bf16, zero bubble": ("bf16", Degrees(tensor=2, pipeline=2), 4),
    "O2, all recomputed": ("O2", Degrees(tensor=2), 4, "full"),
}


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("case", CASES)
def test_a_chunked_training_equals_an_unchunked_one(case: str, learned: Callable[..., list[float]]) -> None:
    kind, degrees = CASES[case][:2]
    tensor = Degrees(tensor=degrees.tensor)
    # Matmuls of fewer rows may be summed in another order, and so rounded differently. The noise is at most
    # that of sums over another number of ranks in bfloat16, and of its own rounding in FP8. In practice the
    # bits were equal.
    tied_replicas = [("bf16", Degrees(tensor=2)), (kind, Degrees(tensor=4 if kind == "bf16" else 2))]
    noise = _apart(*(learned(*twin) for twin in tied_replicas))
    assert 0 < noise < 0.1
    assert _apart(learned(*CASES[case]), learned(kind, tensor)) <= noise


def _apart(one: list[float], other: list[float]) -> float:
    return max(abs(mine - others) for mine, others in zip(one, other, strict=True))
