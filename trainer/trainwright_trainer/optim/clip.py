"""Gradient clipping by the global norm (Pascanu et al. 2013): one L2 norm over all gradients, one factor for
all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from trainwright_trainer.distributed.axis import Axis

_ADDED = 1e-6
"""torch's factor is limit / (norm + this), at most 1."""

_WELL_BELOW = 0.99
"""Fraction of the limit below which the factor is 1, however norms are rounded."""


def global_norm(parameters: Sequence[nn.Parameter]) -> Tensor:
    """L2 norm of all gradients together, a scalar on their device; not finite if any gradient is not."""
    return get_total_norm([weight.grad for weight in parameters if weight.grad is not None])


def norm_over(model: Axis, norm: Tensor) -> Tensor:
    """The norm over all ranks of ``model``, from this rank's."""
    return norm if model.ranks == 1 else model.all_reduce(norm.square()).sqrt()


def clip(parameters: Sequence[nn.Parameter], norm: Tensor, limit: float | None) -> None:
    """Scale the gradients, whose global norm is ``norm``, down to ``limit``.

    If the factor is 1, nothing is multiplied: that saves most steps a pass over all gradients and changes no
    bit.
    """
    if limit is not None and not float(norm) + _ADDED < _WELL_BELOW * limit:
        with torch.no_grad():
            clip_grads_with_norm_(parameters, limit, norm)
