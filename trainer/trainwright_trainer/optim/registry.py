"""The optimizers of float32 weights, by their name in a run's spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn
from torch.optim import Optimizer as TorchOptimizer

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.optim.adamw import FusedAdamW, torch_adamw
from trainwright_trainer.optim.lamb import Lamb
from trainwright_trainer.optim.muon import Muon
from trainwright_trainer.optim.optimizer import Optimizer
from trainwright_trainer.optim.whole_weights import WholeWeights

OPTIMIZERS: dict[str, type[Optimizer]] = {"adamw": FusedAdamW, "lamb": Lamb, "muon": Muon}

TORCH_OPTIMIZERS: dict[str, Callable[[nn.Module, OptimizerSpec, str], TorchOptimizer]] = {
    "adamw": torch_adamw
}
"""torch's own classes of the optimizers that have one, over all weights of a model. DeepSpeed shards these
(``UpdateRule.on_deepspeed``)."""


def build_optimizer(
    weights: Mapping[str, nn.Parameter], spec: OptimizerSpec, whole: WholeWeights
) -> Optimizer:
    """The optimizer that ``spec`` names, over this rank's parts of ``weights``."""
    return OPTIMIZERS[spec.kind](weights, spec, whole)
