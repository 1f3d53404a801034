"""Per-weight scalars of a model whose weights are spread over ranks: scales, largest values, histories.

Checkpoints and metrics need them for all weights in the model's order, which no rank has. Ranks with parts of the same
weight have equal scalars for it. So one rank contributes the scalars of each weight, the primary rank with its first
element, and ``all_gather`` is a sum of that value and zeros.

    N weights of the model   P of them here
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.shard_spec import ShardSpec, ShardSpecs


class ParameterIndex:
    """Some weights of the model, and which of them this rank has."""

    def __init__(
        self, names: Sequence[str], local: Sequence[str], shard_specs: ShardSpecs, model: Axis
    ) -> None:
        """``names``: all weights, in the model's order. ``local``: those on this rank, in the order of its
        vectors.
        """
        self.names = list(names)
        self._model = model
        index_of = {name: index for index, name in enumerate(self.names)}
        self._indices = torch.tensor(
            [index_of[name] for name in local], dtype=torch.int64, device=model.device
        )
        written = [position for position, name in enumerate(local) if is_writer(shard_specs.local[name])]
        self._written = torch.tensor(written, dtype=torch.int64, device=model.device)

    def all_gather(self, local_values: Tensor, dim: int = -1) -> Tensor:
        """(…, P, …) → (…, N, …), equal on all ranks of the model axis; all of them must call this."""
        shape = list(local_values.shape)
        shape[dim] = len(self.names)
        values = local_values.index_select(dim, self._written)
        all_values = local_values.new_zeros(shape).index_copy(dim, self._indices[self._written], values)
        return self._model.all_reduce(all_values)

    def take(self, all_values: Tensor, dim: int = -1) -> Tensor:
        """(…, N, …) → (…, P, …)."""
        return all_values.to(self._model.device).index_select(dim, self._indices)


def is_writer(spec: ShardSpec) -> bool:
    """Whether this rank of the model axis contributes the weight's scalars for all ranks that have parts of
    it.
    """
    return spec.is_primary and not any(spec.slice.offset)
