"""LAMB: Adam whose step is, for each matrix, proportional to the matrix's norm (You et al. 2020, arXiv 1904.00962).

With m̂ and v̂ the moments of a weight w, corrected for their number, as in AdamW:

    u = m̂ / (√v̂ + ε) + λ w          the direction, weight decay included
    w ← w - η · (‖w‖ / ‖u‖) · u      the trust ratio, 1 if either norm is zero

So each matrix turns by about the same angle η in a step, no matter how large its gradients are compared with those of
other matrices. Therefore the learning rate may grow with the batch: MegaScale (arXiv 2402.15627) trained with 4 times
the batch at the same loss. Norms and other vectors, which have no weight decay, get the ratio 1, as in the authors'
implementation.

The norms are those of entire matrices (``whole_weights``). Norms of slices would give each rank a different ratio, so
the result of a training would depend on its layout. All norms are summed in one collective. u uses the gradient's
memory, so a step needs only temporary memory for one weight more than a step of AdamW.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.optimizer import Optimizer, WeightGroup
from trainwright_trainer.optim.whole_weights import WholeWeights


class Lamb(Optimizer):
    """Updates matrices by their trust ratio and vectors as Adam does."""

    def __init__(self, weights: Mapping[str, nn.Parameter], spec: OptimizerSpec, whole: WholeWeights) -> None:
        super().__init__(weights, spec, whole)
        self._ratios = torch.ones(0)
        """The trust ratios of all matrices of the model in the last update."""

    def update(self, groups: list[WeightGroup]) -> None:
        squares = {}
        for group in groups:
            for name, weight in group.weights.items():
                self._replace_gradient(weight, group.weight_decay)
                if weight.ndim >= 2:
                    squares[name] = _squared_norms(weight)
        sums_N3 = self._whole.sum(squares, 3)
        ratios_N = trust_ratios(sums_N3[:, :2])
        for group in groups:
            for name, weight in group.weights.items():
                assert weight.grad is not None
                ratio = ratios_N[self._whole.order[name]] if weight.ndim >= 2 else 1.0
                weight.sub_(weight.grad.mul_(group.learning_rate * ratio))
        self._ratios = ratios_N[sums_N3[:, 2] > 0]

    def metrics(self) -> dict[str, float]:
        """Smallest, median and largest trust ratio of all matrices of the model."""
        ratios = sorted(self._ratios.tolist())
        found = {"min": ratios[0], "median": median(ratios), "max": ratios[-1]} if ratios else {}
        return {f"trust_ratio/{name}": value for name, value in found.items()}

    def _replace_gradient(self, weight: nn.Parameter, weight_decay: float) -> None:
        """Update the moments of ``weight``, and replace its gradient by the direction u."""
        gradient, spec, state = weight.grad, self._spec, self.state[weight]
        assert gradient is not None
        first, second = state["exp_avg"], state["exp_avg_sq"]
        made = state["step"].add_(1).double()  # in float32, 1 - 0.999 would have three digits
        first.lerp_(gradient, 1 - spec.beta1)
        second.mul_(spec.beta2).addcmul_(gradient, gradient, value=1 - spec.beta2)
        root = second.div(1 - spec.beta2**made).sqrt_().add_(spec.epsilon)
        torch.div(first, root, out=gradient).div_(1 - spec.beta1**made)
        if weight_decay:
            gradient.add_(weight, alpha=weight_decay)


def trust_ratios(squares_N2: Tensor) -> Tensor:
    """(N,) from the squared norms of each entire weight and of its direction."""
    weights_N, directions_N = squares_N2.sqrt().unbind(1)
    return (weights_N / directions_N).where((weights_N > 0) & (directions_N > 0), 1.0)


def _squared_norms(weight: nn.Parameter) -> Tensor:
    """(3,) float64: of this rank's part of a weight and of its direction, and 1, to tell matrices from vectors."""
    assert weight.grad is not None
    norms = torch.stack((vector_norm(weight), vector_norm(weight.grad), weight.new_ones(())))
    return norms.double().square()
