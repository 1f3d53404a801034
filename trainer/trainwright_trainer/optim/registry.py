"""The optimizers of float32 weights, by their name in a run's spec."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from trainwright.contracts.training_spec import OptimizerSpec
from trainwright_trainer.optim.adamw import FusedAdamW
from trainwright_trainer.optim.optimizer import Optimizer

OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": FusedAdamW}


def build_optimizer(parameters: Sequence[nn.Parameter], spec: OptimizerSpec) -> Optimizer:
    """The optimizer that ``spec`` names, over ``parameters``."""
    return OPTIMIZERS[spec.kind](parameters, spec)
