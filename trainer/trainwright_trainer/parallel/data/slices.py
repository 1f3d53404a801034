"""Weights of which each rank keeps a slice (ZeRO stage 3, Rajbhandari et al. 2020), by PyTorch's FSDP2.

    owns   each rank a stretch of the rows of every matrix, with its gradient and moments; vectors, which are a
           millionth of a model, are whole everywhere
    moves  forward     the matrices of a block are gathered before it and let go after it
           backward    they are gathered again; their gradients are added up, each rank receiving its rows' sums
           replicas    copies of slices, where data ranks are more than those of the shard axis, add up theirs in the
                       last round

Blocks, and an embedding and a head that are not tied, come and go one by one; weights that are tied stay from their first
use to their last. In bfloat16 the matrices of blocks travel in it: what autocast makes of float32 weights would be kept
for the backward pass, and with it all weights. Their gradients are bfloat16 then, as under autocast, and summed in
float32. Embedding and head travel in float32, because their gradients do.

It is a pass over a built model that takes no memory yet and whose blocks recompute what they are to recompute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor

from trainwright.contracts.precision_spec import PrecisionKind
from trainwright_trainer.mesh import Axis, Mesh
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.data.replicate import GradientBuckets
from trainwright_trainer.parallel.data.shares import Shares
from trainwright_trainer.parts import Parts, Slice

Initial = Callable[[str, Slice], Tensor]
"""A box of a weight's first values, by name, on the CPU."""


def share_weights(
    model: Transformer, parts: Parts, precision: PrecisionKind, mesh: Mesh, initial: Initial | None
) -> Shares:
    """Cut ``model``, whose weights take no memory yet, over the shard axis, and give it a place on its device.

    Args:
        initial: what weights begin with; None where they are read from a checkpoint.
    """
    vectors = {weight for weight in model.parameters() if weight.ndim == 1}
    _cut(model, vectors, precision, mesh)
    _make_room(model, mesh.device)
    cut, held = {}, {}
    weights: dict[str, nn.Parameter] = {}
    for name, weight in model.named_parameters():
        held[name] = parts.held[name]
        weights[name] = weight
        if isinstance(weight, DTensor):
            cut[name] = weight
            held[name] = replace(held[name], slice=own_rows(held[name].slice, mesh.shard))
            weights[name] = nn.Parameter(weight.to_local().detach())
        assert weights[name].shape == held[name].slice.shape, f"{name} is not cut as it is said to be"
        if initial is not None:
            weights[name].data.copy_(initial(name, held[name].slice))
    here = {name: weight for name, weight in weights.items() if weight.numel()}
    whole = [weight for name, weight in here.items() if name not in cut]
    return Shares(
        weights=here,
        moved=here,
        spoken_for=frozenset(name for name in here if name in cut or mesh.shard.rank == 0),
        parts=held,
        order=parts.order,
        gradients=_SliceGradients(
            model,
            [(cut[name], here[name]) for name in here if name in cut],
            GradientBuckets(whole, mesh.data),
        ),
        gradients_cut=True,
        hand_round=_gathered_when_used,
    )


def own_rows(part: Slice, axis: Axis) -> Slice:
    """This rank's rows of ``part``: stretches of equal length, the last ones shorter or empty."""
    length = -(-part.shape[0] // axis.ranks)
    first = min(axis.rank * length, part.shape[0])
    rows = min(length, part.shape[0] - first)
    return Slice(part.whole, (part.start[0] + first, *part.start[1:]), (rows, *part.shape[1:]))


def is_sliced(model: nn.Module) -> bool:
    """Whether ``share_weights`` was applied to ``model``."""
    return isinstance(model, FSDPModule)


def loss_of_sliced(model: Transformer, head_loss: HeadLoss) -> HeadLoss:
    """``head_loss`` for a model that is cut: it is made inside the head, whose weight is gathered for it.

    A tied head's weight is there already.
    """
    if not isinstance(model.head, FSDPModule):
        return head_loss
    head: Any = model.head

    def loss(self: nn.Linear, features_BTD: Tensor, targets_BT: Tensor) -> Tensor:
        return head_loss(features_BTD, self.weight, targets_BT)

    head.loss = MethodType(loss, head)
    register_fsdp_forward_method(head, "loss")

    def through_head(features_BTD: Tensor, _: Tensor, targets_BT: Tensor) -> Tensor:
        inside: Tensor = head.loss(features_BTD, targets_BT)
        return inside

    return through_head


class _SliceGradients:
    """``Gradients`` of slices, which FSDP adds up, and of vectors."""

    def __init__(
        self, model: nn.Module, slices: list[tuple[DTensor, nn.Parameter]], vectors: GradientBuckets
    ) -> None:
        self._root = model
        self._slices = slices
        self._vectors = vectors

    def clear(self) -> None:
        # What validation has gathered last would still be there after an update.
        for module in _cut_modules(self._root):
            module.reshard()
            module.set_requires_all_reduce(False, recurse=False)
        for cut, local in self._slices:
            cut.grad, local.grad = None, None
        self._vectors.clear()

    def end_round(self) -> None:
        """Rows' sums are added to those of the round before."""

    def send_as_ready(self) -> None:
        for module in _cut_modules(self._root):
            module.set_requires_all_reduce(True, recurse=False)
        self._vectors.send_as_ready()

    def complete(self, weights: Iterable[nn.Parameter]) -> None:
        raise AssertionError("slices are gathered and added up by autograd's hooks only")

    def wait(self) -> None:
        self._vectors.wait()
        for cut, local in self._slices:
            assert isinstance(cut.grad, DTensor), "a weight got no gradient"
            local.grad = cut.grad.to_local()


def _cut(model: Transformer, vectors: set[nn.Parameter], precision: PrecisionKind, mesh: Mesh) -> None:
    devices = _device_mesh(mesh)
    exact = MixedPrecisionPolicy(cast_forward_inputs=False)
    in_blocks = exact
    if precision is PrecisionKind.BF16:
        in_blocks = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    for block in model.layers.values():
        fully_shard(block, mesh=devices, mp_policy=in_blocks, ignored_params=vectors)
    if model.head.weight is not model.embedding.weight:
        fully_shard(model.embedding, mesh=devices, mp_policy=exact).set_unshard_in_backward(False)
        # The backward pass begins with the head.
        fully_shard(model.head, mesh=devices, mp_policy=exact, reshard_after_forward=False)
    fully_shard(model, mesh=devices, mp_policy=exact, ignored_params=vectors)
    register_fsdp_forward_method(model, "features")
    for module in _cut_modules(model):
        # A loss is a share of the mean already; gradients are summed, not averaged.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)


def _device_mesh(mesh: Mesh) -> DeviceMesh:
    """The data axis as torch sees it: shards, of which there may be copies."""
    kind, shard, replicas = mesh.device.type, mesh.shard.group, mesh.replicas.group
    assert shard is not None
    if replicas is None:
        return DeviceMesh.from_group(shard, kind, mesh_dim_names=("shard",))
    grid = torch.tensor(mesh.data.members).view(mesh.replicas.ranks, mesh.shard.ranks)
    return DeviceMesh.from_group([replicas, shard], kind, mesh=grid, mesh_dim_names=("replicas", "shard"))


def _make_room(model: Transformer, device: torch.device) -> None:
    """Room for this rank's slices on ``device``, not filled, and the rotary tables."""
    model.to_empty(device=device)
    model.fill_tables()
    for name, table in list(model.named_buffers(recurse=False)):
        model.register_buffer(name, table.to(device), persistent=False)


def _cut_modules(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def _gathered_when_used() -> None:
    """Each forward pass gathers the weights anew."""
