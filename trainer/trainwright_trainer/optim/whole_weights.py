"""Entire weights, for optimizers that need more than a rank's part of them: sums over their elements, and matrices.

With tensor parallelism and ZeRO stage 3, a rank has a slice of a weight. With pipelines and ZeRO stages 1 and 2, it has
only some of the weights. A norm is over the entire weight, so each rank adds the squares of its part and all ranks sum
them. Every element counts once. Some parts exist on several ranks, such as norms that tensor ranks replicate or an
embedding that two stages tie. Then only the part of the primary rank counts (``distributed.shard_spec``), and only that
of the rank that writes it to checkpoints. The gradient norm and checkpoints follow the same rule.

Matrices are computed by one rank each (``divided_matrices``).

    N weights of the model, in the order of its forward pass     K values of each
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import Slice, full_slice
from trainwright_trainer.optim.divided_matrices import DividedMatrices


class WholeWeights:
    """The weights of a model whose parts are on the ranks of ``axes``."""

    def __init__(
        self,
        order: Mapping[str, int],
        counted: Collection[str],
        axes: Sequence[Axis],
        slices: Mapping[str, Slice],
        copies: Axis,
        rows: Axis,
        tensor: Axis,
    ) -> None:
        """Create it; all ranks must do so in the same way.

        Args:
            order: index of every weight of the model.
            counted: weights whose parts on this rank count.
            axes: ranks that together have one copy of what the optimizer updates.
            slices: what tensor parallelism leaves of each weight that the ranks of ``tensor`` and ``rows`` update together.
            copies: the ranks that update the same parts.
            rows: the ranks with other rows of the slices; this rank alone if those are not divided.
            tensor: the ranks with the other slices.
        """
        self.slices = slices
        self._copies, self._rows, self._tensor = copies, rows, tensor
        self.order = order
        self._counted = frozenset(counted)
        self._axes = axes

    @property
    def device(self) -> torch.device:
        return self._tensor.device

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

    def divided(self, names: Collection[str]) -> DividedMatrices:
        """The matrices ``names``, divided among the ranks that update parts of them."""
        slices = {name: self.slices[name] for name in names}
        return DividedMatrices(slices, self._copies, self._rows, self._tensor)


def only_here(weights: Mapping[str, nn.Parameter], device: torch.device) -> WholeWeights:
    """The weights of a model that this process has entirely."""
    order = {name: index for index, name in enumerate(weights)}
    alone = Axis(((0,),), 0, device)
    slices = {name: full_slice(weight.shape) for name, weight in weights.items()}
    return WholeWeights(order, list(weights), [alone], slices, alone, alone, alone)
