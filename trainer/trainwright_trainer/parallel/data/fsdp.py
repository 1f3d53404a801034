"""Fully sharded data parallelism: each rank keeps a slice of every weight (ZeRO stage 3, Rajbhandari et al.
2020), by FSDP2.

    owns   each rank a range of the rows of every matrix, with its gradient and moments; vectors, which are a
           millionth of a model, are replicated
    moves  forward     the matrices of a block are gathered before it and freed after it
           backward    they are gathered again; their gradients are reduce-scattered by rows
           replicas    with more data ranks than the shard axis has, copies of slices sum their gradients in the
                       last micro batch

Blocks, and an untied embedding and head, are gathered and freed one by one; tied weights stay from their first use to
their last. In bfloat16 runs the matrices of blocks are sent in bfloat16, because autocast's casts of float32 weights
would be saved for the backward pass, and with them all weights. Their gradients are then bfloat16, as under autocast,
and summed in float32. Embedding and head are sent in float32, because their gradients are.

``apply_fsdp`` is a pass over a built model on the meta device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from trainwright_trainer.distributed.equal_weights import make_replicas_equal
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpecs, Slice, row_shard
from trainwright_trainer.model.loss import HeadLoss
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.data.gradient_buckets import GradientBuckets
from trainwright_trainer.parallel.data.zero import ModelShard

FillWeights = Callable[[Mapping[str, Tensor], Mapping[str, Slice]], None]
"""Sets weights, by name, to slices of their initial values."""


def allocate_shards(
    model: Transformer, shard_specs: ShardSpecs, mesh: Mesh, fill: FillWeights | None
) -> ModelShard:
    """Allocate ``model``, which ``apply_fsdp`` sharded on the meta device, on its device.

    Args:
        fill: None if the weights are read from a checkpoint.
    """
    _allocate(model, mesh.device)
    sharded, specs = {}, {}
    weights: dict[str, nn.Parameter] = {}
    for name, weight in model.named_parameters():
        specs[name] = shard_specs.local[name]
        weights[name] = weight
        if isinstance(weight, DTensor):
            sharded[name] = weight
            specs[name] = replace(
                specs[name], slice=row_shard(specs[name].slice, mesh.shard.rank, mesh.shard.ranks)
            )
            weights[name] = nn.Parameter(weight.to_local().detach())
        assert weights[name].shape == specs[name].slice.shape, f"the shard of {name} does not match its spec"
    if fill is not None:
        fill(weights, {name: specs[name].slice for name in weights})
        make_replicas_equal(weights, shard_specs, mesh, frozenset(sharded))
    here = {name: weight for name, weight in weights.items() if weight.numel()}
    unsharded = [weight for name, weight in here.items() if name not in sharded]
    return ModelShard(
        weights=here,
        updated=here,
        written=frozenset(name for name in here if name in sharded or mesh.shard.rank == 0),
        shard_specs=specs,
        order=shard_specs.forward_order,
        rows_sharded=True,
        tensor_slices={name: shard_specs.local[name].slice for name in specs},
        gradients=_FSDPGradients(
            model,
            [(sharded[name], here[name]) for name in here if name in sharded],
            GradientBuckets(unsharded, mesh.data),
        ),
        gradients_sharded=True,
        broadcast_params=_nothing_to_broadcast,
    )


def uses_fsdp(model: nn.Module) -> bool:
    """Whether ``apply_fsdp`` was applied to ``model``."""
    return isinstance(model, FSDPModule)


def fsdp_head_loss(model: Transformer, head_loss: HeadLoss) -> HeadLoss:
    """``head_loss`` for a sharded model: it is computed inside the head, whose weight is gathered for it.

    A tied head's weight is gathered already.
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


class _FSDPGradients:
    """``GradientReducer`` of sharded weights, which FSDP reduces, and of vectors."""

    def __init__(
        self, model: nn.Module, sharded: list[tuple[DTensor, nn.Parameter]], vectors: GradientBuckets
    ) -> None:
        self._root = model
        self._sharded = sharded
        self._vectors = vectors

    def clear(self) -> None:
        # Otherwise the weights that validation gathered last would still be used after an update.
        for module in _fsdp_modules(self._root):
            module.reshard()
            module.set_requires_all_reduce(False, recurse=False)
        for sharded, local in self._sharded:
            sharded.grad, local.grad = None, None
        self._vectors.clear()

    def end_micro_batch(self) -> None:
        """The rows' sums are added to those of the previous micro batch."""

    def reduce_when_ready(self) -> None:
        for module in _fsdp_modules(self._root):
            module.set_requires_all_reduce(True, recurse=False)
        self._vectors.reduce_when_ready()

    def mark_ready(self, weights: Iterable[nn.Parameter]) -> None:
        raise AssertionError("FSDP reduces gradients in autograd's hooks only")

    def wait(self) -> None:
        self._vectors.wait()
        for sharded, local in self._sharded:
            assert isinstance(sharded.grad, DTensor), "a weight got no gradient"
            local.grad = sharded.grad.to_local()


def apply_fsdp(model: Transformer, precision: PrecisionKind, mesh: Mesh) -> None:
    """Shard the matrices of ``model``, which is on the meta device, over the shard axis."""
    vectors = {weight for weight in model.parameters() if weight.ndim == 1}
    devices = make_device_mesh(mesh)
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
        # The backward pass starts with the head.
        fully_shard(model.head, mesh=devices, mp_policy=exact, reshard_after_forward=False)
    fully_shard(model, mesh=devices, mp_policy=exact, ignored_params=vectors)
    register_fsdp_forward_method(model, "features")
    for module in _fsdp_modules(model):
        # A loss is a share of the mean already, so gradients are summed, not averaged.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)


def make_device_mesh(mesh: Mesh) -> DeviceMesh:
    """The data axis for torch: shards, possibly with replicas."""
    kind, shard, replicas = mesh.device.type, mesh.shard.group, mesh.replicas.group
    assert shard is not None
    if replicas is None:
        return DeviceMesh.from_group(shard, kind, mesh_dim_names=("shard",))
    grid = torch.tensor(mesh.data.global_ranks).view(mesh.replicas.ranks, mesh.shard.ranks)
    return DeviceMesh.from_group([replicas, shard], kind, mesh=grid, mesh_dim_names=("replicas", "shard"))


def _allocate(model: Transformer, device: torch.device) -> None:
    """Allocate this rank's slices on ``device``, uninitialized, and the rotary tables."""
    model.to_empty(device=device)
    model.fill_tables()
    for name, table in list(model.named_buffers(recurse=False)):
        model.register_buffer(name, table.to(device), persistent=False)


def _fsdp_modules(model: nn.Module) -> list[FSDPModule]:
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def _nothing_to_broadcast() -> None:
    """Each forward pass gathers the weights again."""
