"""Muon: momentum made orthogonal for the matrices in blocks, AdamW for all other weights (Jordan et al. 2024).

    M ← μ M + (1 - μ) G            momentum of the gradient G
    N = μ M + (1 - μ) G            one step ahead (Nesterov)
    O = U Vᵀ of N = U S Vᵀ         approximately: all singular values become about 1
    W ← (1 - η λ) W - 0.2 η √max(rows, columns) · O

So weights move as far in directions that are rare among gradients as in frequent ones. The factor gives updates the
root mean square of AdamW's (Moonlight, arXiv 2502.16982, section 2.2), so both use one learning rate and one weight
decay.

O is computed by five Newton–Schulz iterations, which need matmuls only, in float32:

    X ← N / ‖N‖        five times: A = X Xᵀ,  X ← a X + (b A + c A²) X

The constants make small singular values grow fast, 3.4 times in an iteration, and leave all between about 0.7 and 1.2.

O is a function of the entire matrix. With ZeRO 1 and 2 its owner computes it. Tensor ranks, and the ranks that divide
its rows at ZeRO 3, gather the matrix, and each computes all of O and keeps its part (``whole_weights``). They repeat
the same arithmetic, 15 matmuls of the matrix's sizes per step, which is little compared with the many tokens of a
step.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.linalg import vector_norm

from trainwright.contracts.optimizer_spec import is_block_matrix
from trainwright_trainer.optim.adamw import update_by_adamw
from trainwright_trainer.optim.optimizer import Optimizer, WeightGroup

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_MIN_NORM = 1e-7
_ADAMW_RMS = 0.2


class Muon(Optimizer):
    """Updates the matrices in blocks by orthogonal steps, and the rest as AdamW does."""

    def update(self, groups: list[WeightGroup]) -> None:
        group_of: dict[str, WeightGroup] = {}
        for group in groups:
            rest = {
                name: weight
                for name, weight in group.weights.items()
                if not is_block_matrix(name, weight.ndim)
            }
            update_by_adamw(replace(group, weights=rest), self.state, self._spec)
            group_of |= dict.fromkeys(group.weights, group)
        # Ranks that have no rows of a matrix take part in gathering it.
        for name, box in self._whole.slices.items():
            if is_block_matrix(name, len(box.shape)):
                self._update_matrix(name, group_of.get(name))

    def _update_matrix(self, name: str, group: WeightGroup | None) -> None:
        """Update this rank's part, in ``group``, of a matrix; None if it has none."""
        part = None if group is None else self._ahead(name, group)
        step = orthogonalized(self._whole.gather(name, part))
        if group is None:
            return
        weight = group.weights[name]
        weight.mul_(1 - group.learning_rate * group.weight_decay)
        length = group.learning_rate * _ADAMW_RMS * max(step.shape) ** 0.5
        weight.sub_(self._whole.own_part(name, step), alpha=length)

    def _ahead(self, name: str, group: WeightGroup) -> Tensor:
        """Update the momentum, and return it one step ahead, in the gradient's memory."""
        weight, decay = group.weights[name], self._spec.resolved("momentum")
        assert weight.grad is not None
        momentum = self.state[weight]["momentum_buffer"]
        self.state[weight]["step"].add_(1)
        momentum.lerp_(weight.grad, 1 - decay)
        return weight.grad.lerp_(momentum, decay)


def orthogonalized(matrix: Tensor) -> Tensor:
    """A matrix with the singular vectors of ``matrix`` and singular values of about 1."""
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if tall else matrix  # matmuls of the shorter side are smaller
    x = x / (vector_norm(x) + _MIN_NORM)
    for _ in range(_ITERATIONS):
        squares = x @ x.t()
        x = torch.addmm(x, torch.addmm(squares, squares, squares, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x
