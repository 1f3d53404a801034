"""Initial weights that several ranks have are made equal bit for bit.

Each rank draws its weights itself, from the same seed. Processors of different kinds may round a few of them differently,
for example because one has wider vector instructions. Replicas must not differ, because only gradients are exchanged
later: a difference would remain for the entire run. So the ranks compare sums over the weights' bits, and the first of them
sends the weights that differ somewhere. On equal processors nothing else is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpecs

_CHUNK_ELEMENTS = 1 << 24


def make_replicas_equal(
    weights: Mapping[str, Tensor],
    shard_specs: ShardSpecs,
    mesh: Mesh,
    row_shards: frozenset[str] = frozenset(),
) -> None:
    """Make this rank's initial weights equal to those of the other ranks that have them. Every rank must call this.

    Args:
        weights: float32, by canonical name, in the same order on all ranks of a stage.
        shard_specs: what this rank has of each weight, before rows are sharded.
        row_shards: weights whose rows are divided among the ranks of the shard axis.
    """
    sharded = [name for name in weights if name in row_shards]
    _send_unequal([weights[name] for name in sharded], mesh.replicas)
    _send_unequal([weight for name, weight in weights.items() if name not in row_shards], mesh.data)
    slices = {name: shard_specs.local[name].slice for name in weights}
    whole = [name for name, box in slices.items() if box.shape == box.full_shape]
    _send_unequal([weights[name] for name in whole], mesh.tensor)
    for name in shard_specs.tied_replicas:
        _send_unequal_copy(weights[name], mesh.pipeline)


def _send_unequal(weights: Sequence[Tensor], axis: Axis) -> None:
    """Replace each weight that is not the same on all ranks of ``axis`` by that of the first."""
    if axis.ranks == 1 or not weights:
        return
    own_N = torch.tensor([_sum_of_bits(weight) for weight in weights], device=axis.device)
    first_N = own_N.clone()
    axis.broadcast(first_N, source=0)
    differs_N = axis.all_reduce_max((own_N != first_N).long())
    for weight, differs in zip(weights, differs_N.tolist(), strict=True):
        if differs:
            sent = weight.detach().to(axis.device).contiguous()
            axis.broadcast(sent, source=0)
            _overwrite(weight, sent)


def _send_unequal_copy(weight: Tensor, axis: Axis) -> None:
    """Replace a weight of the last rank of ``axis`` by that of the first, if they differ. The ranks between lack it."""
    own = torch.tensor(_sum_of_bits(weight), device=axis.device)
    others, first, last = torch.empty_like(own), 0, axis.ranks - 1
    if axis.rank == first:
        axis.send(own, last)
        axis.receive(others, last)
    else:
        axis.receive(others, first)
        axis.send(own, first)
    if own == others:
        return
    sent = weight.detach().to(axis.device).contiguous()
    if axis.rank == first:
        axis.send(sent, last)
    else:
        axis.receive(sent, first)
        _overwrite(weight, sent)


def _sum_of_bits(weight: Tensor) -> int:
    """The sum of the weight's values, read as integers. It does not depend on the order."""
    bits = weight.detach().contiguous().view(-1).view(torch.int32)
    return sum(int(chunk.sum(dtype=torch.int64)) for chunk in bits.split(_CHUNK_ELEMENTS))


def _overwrite(weight: Tensor, sent: Tensor) -> None:
    with torch.no_grad():
        weight.copy_(sent)
