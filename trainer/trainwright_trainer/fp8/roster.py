"""Small numbers of all weights of a model of which each rank holds some: scales, largest values, histories.

Weights have numbers in the order of the whole model, which is that of no layout, and checkpoints and reports know them by
these. What a rank holds of a weight's numbers equals what others hold: those that share a weight share its scales. So one rank
speaks for each weight, that which is counted and holds its first element, and ``gather`` is a sum of zeros and of one number.

    N weights of the model   P of them here
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainwright_trainer.mesh import Axis
from trainwright_trainer.parts import Part, Parts


class Roster:
    """Some weights of the whole model, and which of them this rank holds."""

    def __init__(self, names: Sequence[str], held: Sequence[str], parts: Parts, model: Axis) -> None:
        """``names`` of all, in the order of the whole model; ``held`` are those here, in the order of vectors here."""
        self.names = list(names)
        self._model = model
        number = {name: index for index, name in enumerate(self.names)}
        self._numbers = torch.tensor([number[name] for name in held], dtype=torch.int64, device=model.device)
        spoken = [place for place, name in enumerate(held) if speaks_for(parts.held[name])]
        self._spoken = torch.tensor(spoken, dtype=torch.int64, device=model.device)

    def gather(self, of_held: Tensor, dim: int = -1) -> Tensor:
        """(…, P, …) → (…, N, …), equal on all ranks of the model; all of them must ask."""
        shape = list(of_held.shape)
        shape[dim] = len(self.names)
        told = of_held.index_select(dim, self._spoken)
        of_all = of_held.new_zeros(shape).index_copy(dim, self._numbers[self._spoken], told)
        return self._model.sum(of_all)

    def take(self, of_all: Tensor, dim: int = -1) -> Tensor:
        """(…, N, …) → (…, P, …)."""
        return of_all.to(self._model.device).index_select(dim, self._numbers)


def speaks_for(part: Part) -> bool:
    """Whether this rank of the model axis tells what all ranks that hold parts of the weight know."""
    return part.counted and not any(part.slice.start)
