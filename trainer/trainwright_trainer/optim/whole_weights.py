"""Sums over entire weights, for optimizers that need more than a rank's part of them.

Tensor ranks and ZeRO stage 3 leave a rank a slice of a weight, pipelines and ZeRO stages 1 and 2 some weights and not
others. A norm is over the entire weight, so each rank adds the squares of its part and all ranks sum them. Every
element counts once: of equal parts, such as norms that tensor ranks replicate or an embedding that two stages tie, only
that of the primary rank does (``distributed.shard_spec``), and only that of the rank that writes it to checkpoints. So
the same rule decides here, for the gradient norm and for checkpoints.

    N weights of the model, in the order of its forward pass     K values of each
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis


class WholeWeights:
    """The weights of a model of which the ranks of ``axes`` have parts."""

    def __init__(self, order: Mapping[str, int], counted: Collection[str], axes: Sequence[Axis]) -> None:
        """Create it; all ranks do so alike.

        Args:
            order: index of every weight of the model.
            counted: weights whose parts on this rank count.
            axes: ranks that together have one copy of what the optimizer updates.
        """
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


def only_here(names: Sequence[str], device: torch.device) -> WholeWeights:
    """The weights of a model that this process has entirely."""
    order = {name: index for index, name in enumerate(names)}
    return WholeWeights(order, names, [Axis(((0,),), 0, device)])
