"""Entire weights, for optimizers that need more than a rank's part of them: sums over their elements, and matrices.

With tensor parallelism and ZeRO stage 3, a rank has a slice of a weight. With pipelines and ZeRO stages 1 and 2, it has
only some of the weights. A norm is over the entire weight, so each rank adds the squares of its part and all ranks sum
them. Every element counts once. Some parts exist on several ranks, such as norms that tensor ranks replicate or an
embedding that two stages tie. Then only the part of the primary rank counts (``distributed.shard_spec``), and only that
of the rank that writes it to checkpoints. The gradient norm and checkpoints follow the same rule.

A matrix is gathered first from each rank's rows of ZeRO stage 3 and then from the slices of tensor ranks, so all of
them have it.

    N weights of the model, in the order of its forward pass     K values of each
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import Slice, full_slice


class WholeWeights:
    """The weights of a model whose parts are on the ranks of ``axes``."""

    def __init__(
        self,
        order: Mapping[str, int],
        counted: Collection[str],
        axes: Sequence[Axis],
        slices: Mapping[str, Slice],
        tensor: Axis,
        rows: Axis | None = None,
    ) -> None:
        """Create it; all ranks must do so in the same way.

        Args:
            order: index of every weight of the model.
            counted: weights whose parts on this rank count.
            axes: ranks that together have one copy of what the optimizer updates.
            slices: what tensor parallelism leaves of each weight that the ranks of ``tensor`` and ``rows`` update together.
            tensor: the ranks with the other slices.
            rows: the ranks with other rows of the slices, if those are divided.
        """
        self.slices = slices
        self._tensor, self._rows = tensor, rows
        self.order = order
        self._counted = frozenset(counted)
        self._axes = axes

    def sum(self, own: Mapping[str, Tensor], values: int) -> Tensor:
        """(N, K) float64: the sums of all ranks' values, equal on all of them; every rank must call this.

        Args:
            own: (K,) of this rank's parts, by weight.
            values: K.
        """
        sums = torch.zeros(len(self.order), values, dtype=torch.float64, device=self._axes[0].device)
        counted = [name for name in own if name in self._counted]
        if counted:
            rows = torch.tensor([self.order[name] for name in counted], device=sums.device)
            sums[rows] = torch.stack([own[name] for name in counted]).double()
        for axis in self._axes:
            axis.all_reduce(sums)
        return sums

    def gather(self, name: str, part: Tensor | None) -> Tensor:
        """The entire matrix ``name``, on every rank that updates a part of it; all of them must call this in one order.

        Args:
            part: this rank's part; None if it has no rows.
        """
        box = self.slices[name]
        if self._rows is not None:
            length = -(-box.shape[0] // self._rows.ranks)
            padded = torch.zeros(length, *box.shape[1:], device=self._rows.device)
            if part is not None:
                padded[: len(part)] = part
            part = self._rows.all_gather(padded)[: box.shape[0]]
        assert part is not None
        lengths = zip(box.shape, box.full_shape, strict=True)
        split = next((dim for dim, (own, full) in enumerate(lengths) if own != full), None)
        if split is None:
            return part
        return torch.cat(self._tensor.all_gather(part.contiguous()[None]).unbind(), split)

    def own_part(self, name: str, matrix: Tensor) -> Tensor:
        """This rank's part of the entire matrix ``name``."""
        box = self.slices[name]
        part = matrix[box.slices]
        if self._rows is None:
            return part
        length = -(-box.shape[0] // self._rows.ranks)
        return part[self._rows.rank * length : (self._rows.rank + 1) * length]


def only_here(weights: Mapping[str, nn.Parameter], device: torch.device) -> WholeWeights:
    """The weights of a model that this process has entirely."""
    order = {name: index for index, name in enumerate(weights)}
    alone = Axis(((0,),), 0, device)
    slices = {name: full_slice(weight.shape) for name, weight in weights.items()}
    return WholeWeights(order, list(weights), [alone], slices, alone)
