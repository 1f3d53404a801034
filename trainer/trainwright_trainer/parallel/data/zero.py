"""ZeRO: the data that data ranks shard instead of replicating, and this rank's shard (Rajbhandari et al. 2020).

    stage 1   moments: each weight has one owner, which updates and broadcasts it      ``owned_parameters``
    stage 2   gradients too: they are reduced to the owner only                        ``sharded_gradients``
    stage 3   weights too: each rank has a slice of every matrix                       ``fsdp``

``optim.sharded_updater`` updates the shards of every stage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpec, ShardSpecs, Slice
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.data.gradient_buckets import GradientBuckets
from trainwright_trainer.parallel.data.owned_parameters import OwnedParameters
from trainwright_trainer.parallel.data.sharded_gradients import ShardedGradients


class GradientReducer(Protocol):
    """Reduces gradients over the data ranks. Its methods follow those of ``Updater`` within a step."""

    def clear(self) -> None:
        """Clear the gradients of the previous step."""

    def end_micro_batch(self) -> None:
        """A backward pass that is not the step's last has ended."""

    def reduce_when_ready(self) -> None:
        """The next backward pass is the step's last."""

    def mark_ready(self, weights: Iterable[nn.Parameter]) -> None:
        """The gradients of ``weights`` are complete, whether or not autograd's hooks have run."""

    def wait(self) -> None:
        """Return when all sums are complete, as the gradients of the weights that this rank updates."""


@dataclass(frozen=True)
class ModelShard:
    """One rank's shard of a model."""

    weights: Mapping[str, nn.Parameter]
    """The weights on this rank, entire or sliced, by canonical name."""

    updated: Mapping[str, nn.Parameter]
    """The weights that this rank updates, and whose moments it has."""

    written: frozenset[str]
    """Those of ``updated`` that no other rank of the shard axis writes to checkpoints."""

    shard_specs: Mapping[str, ShardSpec]
    """Specs of ``weights``."""

    order: Mapping[str, int]
    """``ShardSpecs.forward_order``."""

    tensor_slices: Mapping[str, Slice]
    """This rank's tensor-parallel slice of each weight whose parts the ranks of its tensor group update. Stage 3
    divides the rows of these slices."""

    rows_sharded: bool
    """Whether the shard axis divides rows, and not entire weights."""

    gradients: GradientReducer
    gradients_sharded: bool
    """Whether only the weights in ``updated`` have gradient sums here."""

    broadcast_params: Callable[[], None]
    """Called after weights and their casts are updated: all ranks that use them receive them, some while the next
    forward pass runs."""


def shard_states(model: Transformer, shard_specs: ShardSpecs, mesh: Mesh) -> ModelShard:
    """Shard the moments over the shard axis (stage 1)."""
    weights = dict(model.named_parameters())
    owned = _owned(model, shard_specs, mesh)
    gradients = GradientBuckets(
        list(weights.values()), mesh.data, {weights[name] for name in shard_specs.tied_replicas}
    )
    return _by_owner(weights, owned, shard_specs, gradients, mesh, gradients_sharded=False)


def shard_gradients(model: Transformer, shard_specs: ShardSpecs, mesh: Mesh) -> ModelShard:
    """Shard moments and gradients over the shard axis (stage 2)."""
    weights = dict(model.named_parameters())
    owned = _owned(model, shard_specs, mesh)
    every_micro_batch = mesh.pipeline.ranks == 1
    gradients = ShardedGradients(weights, owned.owners, mesh, every_micro_batch, shard_specs.tied_replicas)
    return _by_owner(weights, owned, shard_specs, gradients, mesh, gradients_sharded=True)


def _owned(model: Transformer, shard_specs: ShardSpecs, mesh: Mesh) -> OwnedParameters:
    sizes = {
        name: _largest_part(shard_specs.local[name].slice, mesh.tensor.ranks)
        for name, _ in model.named_parameters()
    }
    return OwnedParameters(model, mesh.shard, sizes, shard_specs.tied_replicas)


def _largest_part(part: Slice, tensor_ranks: int) -> int:
    """Elements of the largest of the slices that tensor ranks have of a weight."""
    lengths = zip(part.full_shape, part.shape, strict=True)
    return math.prod(full if own == full else -(-full // tensor_ranks) for full, own in lengths)


def _by_owner(
    weights: Mapping[str, nn.Parameter],
    owned: OwnedParameters,
    shard_specs: ShardSpecs,
    gradients: GradientReducer,
    mesh: Mesh,
    gradients_sharded: bool,
) -> ModelShard:
    mine = {name: weight for name, weight in weights.items() if owned.owners[name] == mesh.shard.rank}
    return ModelShard(
        weights,
        mine,
        frozenset(mine),
        shard_specs.local,
        shard_specs.forward_order,
        {name: shard_specs.local[name].slice for name in mine},
        False,
        gradients,
        gradients_sharded,
        owned.broadcast_params,
    )
