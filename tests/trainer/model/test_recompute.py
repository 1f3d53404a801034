"""Recomputation changes no bit of loss and gradients, saves less for the backward pass,
and keeps parameter names."""

import gc
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import FP8Spec, ScalingKind
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.fp8.compute.conversion import convert
from trainwright_trainer.fp8.compute.formats import E4M3, amax_of, scale_for
from trainwright_trainer.fp8.compute.linear import InputCast
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.loss import head_loss
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.runtime.garbage_collection import collect_after_step, synchronized_collection

B, T, V = 2, 32, 64
LAYERS = 3


class Watch(TorchDispatchMode):
    """Counts operations and tracks which of the allocated memory is still alive."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self._taken: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls[func.overloadpacket.__name__] += 1
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                self._taken[StorageWeakRef(storage)] = storage.nbytes()
        return result

    @property
    def held_bytes(self) -> int:
        gc.collect()
        return sum(size for storage, size in self._taken.items() if not storage.expired())


def _model(kind: RecomputeKind) -> Transformer:
    spec = ModelSpec(layers=LAYERS, width=32, heads=4, kv_heads=2)
    model = Transformer(spec, V, T)
    initialize(model, spec, seed=1)
    recompute(model, MemorySpec(recompute=kind))
    return model


def _loss(model: Transformer, in_bf16: bool) -> Tensor:
    tokens, targets = torch.randint(V, (2, B, T), generator=torch.Generator().manual_seed(5))
    with torch.autocast("cpu", torch.bfloat16, enabled=in_bf16):
        return head_loss(model.features(tokens), model.head.weight, targets, B * T)


@pytest.mark.parametrize("in_bf16", [False, True])
@pytest.mark.parametrize("kind", [RecomputeKind.SELECTIVE, RecomputeKind.FULL])
def test_loss_and_gradients_are_the_same_bit_for_bit(kind: RecomputeKind, in_bf16: bool) -> None:
    plain, again = _model(RecomputeKind.NONE), _model(kind)
    losses = [_loss(model, in_bf16) for model in (plain, again)]
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    for (name, one), other in zip(plain.named_parameters(), again.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.equal(one.grad, other.grad), name


def test_parameter_names_are_unchanged() -> None:
    plain = _model(RecomputeKind.NONE)
    for kind in RecomputeKind:
        model = _model(kind)
        assert [name for name, _ in model.named_parameters()] == [
            name for name, _ in plain.named_parameters()
        ]
        assert list(model.state_dict()) == list(plain.state_dict())


def _watched(kind: RecomputeKind) -> tuple[int, Counter[str], Counter[str]]:
    """Bytes alive between the passes, and the operations of the forward and of the backward pass."""
    model = _model(kind)
    with Watch() as forward:
        loss = _loss(model, in_bf16=True)
        held = forward.held_bytes
    with Watch() as backward:
        loss.backward()
    return held, forward.calls, backward.calls


@pytest.mark.slow(target="layouts")
def test_less_is_saved_and_only_that_is_recomputed() -> None:
    none, _, without = _watched(RecomputeKind.NONE)
    selective, _, cheap = _watched(RecomputeKind.SELECTIVE)
    full, forward, everything = _watched(RecomputeKind.FULL)
    assert full < selective < none
    # Besides each block's input, `selective` saves the outputs of its matmuls and attention in bfloat16: q
    # and, half as wide, k and v; attention and output; gate and up; down; and a float32 per head and token.
    width, hidden, heads = 32, 96, 4
    made = 2 * B * T * (2 * width + 2 * width + 2 * hidden + width) + 4 * B * T * heads
    assert selective - full == LAYERS * made
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    assert forward[attention] == LAYERS
    assert (without[attention], cheap[attention], everything[attention]) == (0, 0, LAYERS)
    assert without["mm"] == cheap["mm"] < everything["mm"]
    assert without["silu"] == 0 and cheap["silu"] == LAYERS


@pytest.mark.parametrize("kind", [RecomputeKind.SELECTIVE, RecomputeKind.FULL])
def test_fp8_layers_are_recomputed_bit_for_bit(kind: RecomputeKind) -> None:
    """Their amax is a running maximum, so the same values change nothing the second time."""
    (loss, gradients, amaxes), again = _learn_in_fp8(RecomputeKind.NONE), _learn_in_fp8(kind)
    assert torch.equal(again[0], loss)
    assert all(torch.equal(one, other) for one, other in zip(again[1], gradients, strict=True))
    assert again[2] == amaxes
    assert all(amaxes)


def _learn_in_fp8(kind: RecomputeKind) -> tuple[Tensor, list[Tensor], list[float]]:
    model = _model(RecomputeKind.NONE)
    numbers = {name: one.detach().clone() for name, one in model.named_parameters()}
    weights = convert(model, FP8Spec(), torch.device("cpu")).weights
    for name, weight in weights.items():
        weight.attach(numbers[name], torch.ones(()), scale_for(amax_of(numbers[name]), E4M3))
    recompute(model, MemorySpec(recompute=kind))
    tokens, targets = torch.randint(V, (2, B, T), generator=torch.Generator().manual_seed(5))
    loss = head_loss(model.features(tokens), model.head.weight, targets, B * T // 4)
    loss.backward()
    gradients = [weight.handle.grad for weight in weights.values() if weight.handle.grad is not None]
    assert len(gradients) == len(weights)
    casts = [part for part in model.modules() if isinstance(part, InputCast)]
    return loss.detach(), gradients, [cast.amax.item() for cast in casts]


@pytest.mark.slow(target="layouts")
def test_matmuls_of_blocks_are_saved_like_other_matmuls() -> None:
    # Meta tensors take the same path as GPUs. A single block of 128 would be a row, so all dims are two
    # blocks.
    calls = {}
    for kind in RecomputeKind:
        with torch.device("meta"):
            spec = ModelSpec(layers=1, width=256, heads=2, kv_heads=2, feed_forward=256)
            model = Transformer(spec, V, T)
            in_blocks = FP8Spec(scaling=ScalingKind.BLOCK)
            for weight in convert(model, in_blocks, torch.device("meta")).weights.values():
                weight.attach(torch.empty(weight.handle.shape), torch.ones(()), torch.ones(()))
            recompute(model, MemorySpec(recompute=kind))
            tokens = torch.zeros(8, T, dtype=torch.int64)
            loss = head_loss(model.features(tokens), model.head.weight, tokens, 8 * T)
        with Watch() as backward:
            loss.backward()
        calls[kind] = backward.calls["multiply_blocks"]
    matrices = 7  # each has a matmul for x and one for W
    assert calls[RecomputeKind.NONE] == calls[RecomputeKind.SELECTIVE] == 2 * matrices
    assert calls[RecomputeKind.FULL] == 3 * matrices


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("kind", RecomputeKind)
def test_reference_cycles_of_a_step_hold_no_tensor_and_are_collected_after_it(kind: RecomputeKind) -> None:
    model = _model(kind)

    def step() -> None:
        _loss(model, in_bf16=True).backward()

    with synchronized_collection():
        step()  # the first one allocates what persists
        collect_after_step(200)
        step()
        collect_after_step(1)
        assert gc.collect() == 0
        step()
        left = _collected_at_the_end_of_a_step()
    assert not any(issubclass(item, Tensor) for item in left)
    assert bool(left) is (kind is not RecomputeKind.NONE), "without any cycle, the test proves nothing"


def _collected_at_the_end_of_a_step() -> list[type]:
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        collect_after_step(1)
        return [type(item) for item in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
