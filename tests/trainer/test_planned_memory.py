"""The planner's bytes, against those of real tensors."""

import pytest
import torch
from torch import Tensor, nn

from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import FP8Spec, PrecisionKind
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright.planner.activations import Form, block_bytes, cast_bytes_per_weight
from trainwright_trainer.fp8.convert import convert
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.residual import carry_in
from trainwright_trainer.model.transformer import Transformer

MODELS = {
    "grouped": ModelSpec(layers=2, width=128, heads=4, kv_heads=2, feed_forward=320),
    "wide heads": ModelSpec(layers=2, width=64, heads=4, head_size=32, feed_forward=256),
    "narrow gate": ModelSpec(layers=2, width=256, heads=4, feed_forward=192),
}
SEQUENCES, LENGTH = 4, 64
_WITHIN = 0.15
"""Rotary tables, random states and a few scalars are in the measurement and not in the plan."""


class Storages:
    """Counts the memory behind tensors, each storage once."""

    def __init__(self, known: list[Tensor]) -> None:
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self._kept: dict[int, torch.UntypedStorage] = {}

    def keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._known:
            self._kept[storage.data_ptr()] = storage
        return tensor

    @property
    def bytes(self) -> int:
        return sum(storage.nbytes() for storage in self._kept.values())


def block_of(model: ModelSpec, kind: PrecisionKind) -> Transformer:
    torch.manual_seed(0)
    built = Transformer(model, 257, LENGTH)
    if kind is PrecisionKind.BF16:
        carry_in(built, torch.bfloat16)
    if kind is PrecisionKind.FP8:
        weights = {name: weight.detach().half() for name, weight in built.named_parameters()}
        for name, weight in convert(built, FP8Spec()).weights.items():
            weight.attach(weights[name], torch.ones(()), torch.ones(()))
    return built


def measured_bytes(built: Transformer, kind: PrecisionKind) -> int:
    """What autograd keeps of the first block's forward pass."""
    dtype = torch.float32 if kind is PrecisionKind.FP32 else torch.bfloat16
    x = torch.randn(SEQUENCES, LENGTH, built.layers["0"].attention.query.weight.shape[1], dtype=dtype)  # type: ignore[union-attr,index]
    known = [*built.parameters(), *built.buffers(), built.cosines, built.sines]
    storages = Storages(known)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind is PrecisionKind.BF16),
        torch.autograd.graph.saved_tensors_hooks(storages.keep, lambda tensor: tensor),
    ):
        built.layers["0"](x.requires_grad_(), built.cosines, built.sines)
    return storages.bytes


def planned_bytes(built: nn.Module, model: ModelSpec, form: Form) -> float:
    tokens = SEQUENCES * LENGTH
    matrices = model.width * (2 * model.heads + 2 * model.key_value_heads) * model.features_per_head
    matrices += 3 * model.width * model.hidden
    return tokens * block_bytes(model, form).total + cast_bytes_per_weight(form) * matrices


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", PrecisionKind)
def test_a_block_keeps_what_is_planned(kind: PrecisionKind, model: str) -> None:
    built = block_of(MODELS[model], kind)
    assert measured_bytes(built, kind) == pytest.approx(
        planned_bytes(built, MODELS[model], Form(kind)), rel=_WITHIN
    )


@pytest.mark.parametrize("kind", [PrecisionKind.BF16, PrecisionKind.FP8])
def test_a_compiled_block_keeps_what_is_planned(kind: PrecisionKind) -> None:
    model = MODELS["grouped"]
    built = block_of(model, kind)
    built.layers["0"].compile(fullgraph=True, dynamic=False)
    assert measured_bytes(built, kind) == pytest.approx(
        planned_bytes(built, model, Form(kind, compiled=True)), rel=_WITHIN
    )


@pytest.mark.parametrize("kind", PrecisionKind)
def test_a_block_that_is_computed_again_keeps_its_input(kind: PrecisionKind) -> None:
    model = MODELS["grouped"]
    built = block_of(model, kind)
    recompute(built, MemorySpec(recompute=RecomputeKind.FULL))
    form = Form(kind, recompute=RecomputeKind.FULL)
    assert measured_bytes(built, kind) == pytest.approx(planned_bytes(built, model, form), rel=_WITHIN)
