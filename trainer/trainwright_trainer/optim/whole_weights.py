"""Entire weights, for optimizers that need more than a rank's part of them: sums over their elements, and matrices.

With tensor parallelism and ZeRO stage 3, a rank has a slice of a weight. With pipelines and ZeRO stages 1 and 2, it has
only some of the weights. A norm is over the entire weight, so each rank adds the squares of its part and all ranks sum
them. Every element counts once. Some parts exist on several ranks, such as norms that tensor ranks replicate or an
embedding that two stages tie. Then only the part of the primary rank counts (``distributed.shard_spec``), and only that
of the rank that writes it to checkpoints. The gradient norm and checkpoints follow the same rule.

Matrices are computed by one rank each (``divided_matrices``).

    N weights of the model, in the order of its forward pass     M weights of a rank     K values of each
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
        self._rows_of_names: dict[tuple[str, ...], tuple[Tensor, Tensor]] = {}

    @property
    def device(self) -> torch.device:
        return self._tensor.device

    def sum(self, names: Sequence[str], own_MK: Tensor) -> Tensor:
        """(N, K) float64: the sums of all ranks' values, equal on all of them; every rank must call this.

        Args:
            names: the M weights that this rank has parts of.
            own_MK: values of these parts.
        """
        sums_NK = torch.zeros(len(self.order), own_MK.shape[1], dtype=torch.float64, device=self.device)
        if names:
            counted, rows = self._counted_rows(tuple(names))
            sums_NK[rows] = own_MK[counted].double()
        for axis in self._axes:
            axis.all_reduce(sums_NK)
        return sums_NK

    def _counted_rows(self, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """The indices of the parts that count, among ``names`` and in the model. They are copied to the device once, because
        the host waits for that.
        """
        if names not in self._rows_of_names:
            counted = [index for index, name in enumerate(names) if name in self._counted]
            rows = [self.order[names[index]] for index in counted]
            self._rows_of_names[names] = (
                torch.tensor(counted, dtype=torch.int64, device=self.device),
                torch.tensor(rows, dtype=torch.int64, device=self.device),
            )
        return self._rows_of_names[names]

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
