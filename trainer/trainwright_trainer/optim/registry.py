"""The optimizers of float32 weights, by their name in a run's spec."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.adamw import FusedAdamW
from trainwright_trainer.optim.lamb import Lamb
from trainwright_trainer.optim.muon import Muon
from trainwright_trainer.optim.optimizer import Optimizer
from trainwright_trainer.optim.whole_weights import WholeWeights

OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": FusedAdamW, "lamb": Lamb, "muon": Muon}


def build_optimizer(
    weights: Mapping[str, nn.Parameter], spec: OptimizerSpec, whole: WholeWeights
) -> Optimizer:
    """The optimizer that ``spec`` names, over this rank's parts of ``weights``."""
    return OPTIMIZERS[spec.kind](weights, spec, whole)
