"""Muon: momentum made orthogonal for the matrices in blocks, AdamW for all other weights (Jordan et al. 2024).

    M ← μ M + (1 - μ) G            momentum of the gradient G
    N = μ M + (1 - μ) G            one step ahead (Nesterov)
    O = U Vᵀ of N = U S Vᵀ         approximately: all singular values become about 1
    W ← (1 - η λ) W - 0.2 η √max(rows, columns) · O

So weights move as far in directions that are rare among gradients as in frequent ones. The factor gives updates the
root mean square of AdamW's (Moonlight, arXiv 2502.16982, section 2.2), so both use one learning rate and one weight
decay.

O is computed by five Newton–Schulz iterations, which need matmuls only:

    X ← N / ‖N‖        five times: A = X Xᵀ,  X ← a X + (b A + c A²) X

The constants make small singular values grow fast, 3.4 times in an iteration, and leave all between about 0.7 and 1.2.
This tolerates rounding, so GPUs compute in bfloat16, as the authors do; CPUs, which have no faster matmuls for it, in
float32.

O is a function of the entire matrix, and its 15 matmuls are not few: for matrices 4,096 wide and 32,768 tokens per rank
and step, they take 0.6 times as many FLOPs as the forward and backward passes. So each matrix is computed by only one of
the ranks that have it, or a copy or other part of it (``divided_matrices``). At ZeRO 1 and 2, these are its owner and
the ranks that own other slices or copies.

Without ZeRO, this sends 2 bytes per element, a quarter of what the all-reduce of its gradient sends. A matrix of m²
elements takes 30 m³ FLOPs, so at 300 TFLOP/s this saves time if links send over 20 / m TB per second: 5 GB/s for m of
4,096. On slower links the gradients dominate the step, and this adds at most a quarter to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

from trainwright.contracts.optimizer_spec import OptimizerSpec, is_block_matrix
from trainwright_trainer.optim.adamw import update_by_adamw
from trainwright_trainer.optim.optimizer import Optimizer, WeightGroup
from trainwright_trainer.optim.whole_weights import WholeWeights

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_MIN_NORM = 1e-7
_ADAMW_RMS = 0.2


class Muon(Optimizer):
    """Updates the matrices in blocks by orthogonal steps, and the rest as AdamW does."""

    def __init__(self, weights: Mapping[str, nn.Parameter], spec: OptimizerSpec, whole: WholeWeights) -> None:
        super().__init__(weights, spec, whole)
        names = [name for name, box in whole.slices.items() if is_block_matrix(name, len(box.shape))]
        self._matrices = whole.divided(names)

    def update(self, groups: list[WeightGroup]) -> None:
        parts: dict[str, Tensor] = {}
        for group in groups:
            rest, matrices = _by_kind(group)
            update_by_adamw(rest, self.state, self._spec)
            parts |= self._ahead(matrices)
        self._matrices.replace(parts, orthogonalized, _matmul_dtype(self._whole.device))
        for group in groups:
            self._move(_by_kind(group)[1], parts)

    def _ahead(self, group: WeightGroup) -> dict[str, Tensor]:
        """Update the momenta of matrices, and return them one step ahead, in the gradients' memory."""
        if not group.weights:
            return {}
        decay = self._spec.resolved("momentum")
        states = [self.state[weight] for weight in group.weights.values()]
        gradients = [weight.grad for weight in group.weights.values() if weight.grad is not None]
        momenta = [state["momentum_buffer"] for state in states]
        torch._foreach_add_([state["step"] for state in states], 1)
        torch._foreach_lerp_(momenta, gradients, 1 - decay)
        torch._foreach_lerp_(gradients, momenta, decay)
        return dict(zip(group.weights, gradients, strict=True))

    def _move(self, group: WeightGroup, steps: Mapping[str, Tensor]) -> None:
        """Move matrices by this rank's parts of their directions."""
        if group.weights:
            torch._foreach_mul_([*group.weights.values()], 1 - group.learning_rate * group.weight_decay)
        for name, weight in group.weights.items():
            length = group.learning_rate * _ADAMW_RMS * max(self._whole.slices[name].full_shape) ** 0.5
            weight.sub_(steps[name], alpha=length)


def _by_kind(group: WeightGroup) -> tuple[WeightGroup, WeightGroup]:
    """The weights that AdamW updates, and the matrices in blocks."""
    matrices = {name: weight for name, weight in group.weights.items() if is_block_matrix(name, weight.ndim)}
    rest = {name: weight for name, weight in group.weights.items() if name not in matrices}
    return replace(group, weights=rest), replace(group, weights=matrices)


def _matmul_dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def orthogonalized(matrix: Tensor) -> Tensor:
    """A matrix with the singular vectors of ``matrix`` and singular values of about 1, in its dtype."""
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.t() if tall else matrix  # matmuls of the shorter side are smaller
    x = x / (vector_norm(x, dtype=torch.float32) + _MIN_NORM)
    for _ in range(_ITERATIONS):
        squares = x @ x.t()
        x = torch.addmm(x, torch.addmm(squares, squares, squares, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x
