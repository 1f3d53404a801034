"""LAMB: Adam whose step is, for each matrix, proportional to the matrix's norm (You et al. 2020, arXiv 1904.00962).

With m̂ and v̂ the moments of a weight w, corrected for their number, as in AdamW:

    u = m̂ / (√v̂ + ε) + λ w          the direction, weight decay included
    w ← w - η · (‖w‖ / ‖u‖) · u      the trust ratio, 1 if either norm is zero

So each matrix turns by about the same angle η in a step, no matter how large its gradients are compared with those of
other matrices. Therefore the learning rate may grow with the batch: MegaScale (arXiv 2402.15627) trained with 4 times
the batch at the same loss. Norms and other vectors, which have no weight decay, get the ratio 1, as in the authors'
implementation.

The norms are those of entire matrices (``whole_weights``). Norms of slices would give each rank a different ratio, so
the result of a training would depend on its layout. All norms are summed in one collective.

Most operations are over lists of weights, and none waits for the device. u uses the gradient's memory, so a step needs
only temporary memory for one list more than a step of AdamW: for one weight and 25 MiB at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import torch
from torch import Tensor, nn

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.optimizer import Optimizer, WeightGroup
from trainwright_trainer.optim.whole_weights import WholeWeights
from trainwright_trainer.parallel.data.gradient_buckets import split_into_buckets


class Lamb(Optimizer):
    """Updates matrices by their trust ratio and vectors as Adam does."""

    def __init__(self, weights: Mapping[str, nn.Parameter], spec: OptimizerSpec, whole: WholeWeights) -> None:
        super().__init__(weights, spec, whole)
        self._sums_N3 = torch.zeros(0, 3)
        """Of the last update: squared norms of all weights of the model and of their directions, and 1 for matrices."""

    def update(self, groups: list[WeightGroup]) -> None:
        for group in groups:
            for weights in split_into_buckets(group.weights.values()):
                self._replace_gradients(weights, group.weight_decay)
        matrices = {
            name: weight for group in groups for name, weight in group.weights.items() if weight.ndim >= 2
        }
        self._sums_N3 = self._whole.sum([*matrices], _squared_norms([*matrices.values()]))
        ratios_N = trust_ratios(self._sums_N3[:, :2])
        for group in groups:
            factors = (group.learning_rate * ratios_N).unbind()
            for name, weight in group.weights.items():
                assert weight.grad is not None
                is_matrix = weight.ndim >= 2
                weight.grad.mul_(factors[self._whole.order[name]] if is_matrix else group.learning_rate)
            if group.weights:
                weights = [*group.weights.values()]
                torch._foreach_sub_([*weights], _gradients(weights))

    def metrics(self) -> dict[str, float]:
        """Smallest, median and largest trust ratio of all matrices of the model."""
        ratios = sorted(trust_ratios(self._sums_N3[self._sums_N3[:, 2] > 0, :2]).tolist())
        found = {"min": ratios[0], "median": median(ratios), "max": ratios[-1]} if ratios else {}
        return {f"trust_ratio/{name}": value for name, value in found.items()}

    def _replace_gradients(self, weights: list[nn.Parameter], weight_decay: float) -> None:
        """Update the moments of ``weights``, and replace their gradients by the directions u."""
        spec, states, gradients = self._spec, [self.state[weight] for weight in weights], _gradients(weights)
        firsts, seconds = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        made = torch.stack(steps).double()  # in float32, 1 - 0.999 would have three digits
        torch._foreach_lerp_(firsts, gradients, 1 - spec.beta1)
        torch._foreach_mul_(seconds, spec.beta2)
        torch._foreach_addcmul_(seconds, gradients, gradients, value=1 - spec.beta2)
        roots = torch._foreach_div(seconds, (1 - spec.beta2**made).unbind())
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, spec.epsilon)
        for gradient, first, root in zip(gradients, firsts, roots, strict=True):
            torch.div(first, root, out=gradient)
        torch._foreach_div_(gradients, (1 - spec.beta1**made).unbind())
        if weight_decay:
            torch._foreach_add_(gradients, [*weights], alpha=weight_decay)


def trust_ratios(squares_N2: Tensor) -> Tensor:
    """(N,) from the squared norms of each entire weight and of its direction."""
    weights_N, directions_N = squares_N2.sqrt().unbind(1)
    return (weights_N / directions_N).where((weights_N > 0) & (directions_N > 0), 1.0)


def _squared_norms(weights: list[nn.Parameter]) -> Tensor:
    """(M, 3) float64: of this rank's parts of M matrices and of their directions, and 1, to tell matrices from vectors."""
    if not weights:
        return torch.zeros(0, 3, dtype=torch.float64)
    norms_2M = torch.stack(
        [*torch._foreach_norm([*weights]), *torch._foreach_norm(_gradients(weights))]
    ).view(2, -1)
    return torch.stack((*norms_2M, torch.ones_like(norms_2M[0])), 1).double().square()


def _gradients(weights: list[nn.Parameter]) -> list[Tensor]:
    """The gradients of weights that all have one."""
    return [weight.grad for weight in weights if weight.grad is not None]
