"""Updates by optimizers that need entire weights, and what they must be: formulas in float64, written from the papers.

The state before and after a training's first step is assembled from the shards that ranks write to checkpoints.
Gradients are derived from the first moments, so only the update is compared, however the gradients were summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.trainer.zero_trainings import LEARNING_RATE, TensorShard, assembled, one_step, start, tensor_shards
from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.distributed.mesh import Mesh

ROUNDING = 2.0**-24

LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "one process": (1, {}),
    "data 2": (2, {}),
    "tensor 2": (2, {"tensor": 2}),
    "pipeline 2": (2, {"pipeline": 2}),
    "zero bubble": (2, {"pipeline": 2, "schedule": "zbv"}),
    "ZeRO 1 over 2": (2, {"zero_stage": 1}),
    "ZeRO 1, tensor 2": (4, {"zero_stage": 1, "tensor": 2}),
    "ZeRO 1, pipeline 2": (4, {"zero_stage": 1, "pipeline": 2}),
    "ZeRO 2, 2 replicas of 2": (4, {"zero_stage": 2, "shard": 2}),
    "ZeRO 2, pipeline 2": (4, {"zero_stage": 2, "pipeline": 2}),
    "ZeRO 3 over 4": (4, {"zero_stage": 3}),
    "ZeRO 3, 2 replicas of 2": (4, {"zero_stage": 3, "shard": 2}),
    "ZeRO 3, tensor 2": (4, {"zero_stage": 3, "tensor": 2}),
    "tensor 2, pipeline 2": (4, {"tensor": 2, "pipeline": 2}),
}
"""Ranks, and the section that lays them out."""


@dataclass
class Steps:
    """What a rank reports: the shards that it writes, before and after the first step."""

    before: dict[str, TensorShard]
    after: dict[str, TensorShard]
    metrics: dict[str, float]


def first_step(mesh: Mesh, job_file: Path, plant: Callable[[], None] | None = None) -> Steps:
    """Train one step, with the fault that ``plant`` injects."""
    if plant is not None:
        plant()
    training = start(mesh, job_file)
    before = tensor_shards(training)
    one_step(training, 1)
    return Steps(before, tensor_shards(training), training.engine.updater.metrics(1))


def states_of(results: list[Steps]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Entire tensors, before and after the step, in float64."""
    before, after = assembled([one.before for one in results]), assembled([one.after for one in results])
    return {name: it.double() for name, it in before.items()}, {
        name: it.double() for name, it in after.items()
    }


def lamb_reference(
    weight: Tensor, first: Tensor, second: Tensor, updates: int, spec: OptimizerSpec
) -> tuple[Tensor, float]:
    """The change of ``weight``, from its moments after ``updates``, and its trust ratio (You et al. 2020, alg. 2)."""
    direction = (first / (1 - spec.beta1**updates)) / (
        (second / (1 - spec.beta2**updates)).sqrt() + spec.epsilon
    )
    if weight.ndim < 2:
        return -LEARNING_RATE * direction, 1.0
    direction = direction + spec.weight_decay * weight
    ratio = float(weight.norm() / direction.norm())
    return -LEARNING_RATE * ratio * direction, ratio


def wrong_by_lamb(results: list[Steps], spec: OptimizerSpec) -> list[str]:
    """Weights that differ from LAMB's first step, and metrics that differ from its norms."""
    before, after = states_of(results)
    wrong, ratios = [], []
    for name in (key.removeprefix("model.") for key in before if key.startswith("model.")):
        weight, first, second = (
            before[f"model.{name}"],
            after[f"optimizer.exp_avg.{name}"],
            after[f"optimizer.exp_avg_sq.{name}"],
        )
        change, ratio = lamb_reference(weight, first, second, 1, spec)
        # The sum is rounded once; the change has about eight roundings, and those of two norms, whose sums over at most
        # 16,448 elements lose less than 2⁷ roundings even if each of their 128 partial sums is rounded one way.
        allowed = ROUNDING * (weight.abs() + 2**8 * change.abs()) + 1e-30
        if bool(((after[f"model.{name}"] - weight - change).abs() > allowed).any()):
            wrong.append(name)
        ratios += [ratio] * (weight.ndim >= 2)
    ratios.sort()
    for one in results:
        found = [one.metrics.get(f"trust_ratio/{name}", 0.0) for name in ("min", "median", "max")]
        wanted = [ratios[0], (ratios[(len(ratios) - 1) // 2] + ratios[len(ratios) // 2]) / 2, ratios[-1]]
        if any(abs(a - b) > 1e-4 * b for a, b in zip(found, wanted, strict=True)):
            wrong.append("metrics")
    return wrong


def muon_reference(momentum_ahead: Tensor) -> Tensor:
    """The direction of Muon's step by its singular values, to each of which Newton–Schulz applies one polynomial."""
    left, values, right = torch.linalg.svd(momentum_ahead.double(), full_matrices=False)
    values = values / values.square().sum().sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left @ torch.diag(values) @ right


NEWTON_SCHULZ = 3.4445**5
"""How much an error of a small singular value grows."""


def wrong_by_muon(results: list[Steps], spec: OptimizerSpec) -> list[str]:
    """Weights that differ from Muon's first step."""
    before, after = states_of(results)
    wrong = []
    for name in (key.removeprefix("model.") for key in before if key.startswith("model.")):
        weight, moved = before[f"model.{name}"], after[f"model.{name}"]
        if f"optimizer.momentum_buffer.{name}" in before:
            # Both Nesterov's look ahead and the momentum itself are multiples of the gradient in the first step.
            step = muon_reference(after[f"optimizer.momentum_buffer.{name}"])
            decay, scale = spec.weight_decay, 0.2 * max(weight.shape) ** 0.5
        else:
            moments = (after[f"optimizer.{kind}.{name}"] for kind in ("exp_avg", "exp_avg_sq"))
            first, second = (
                item / (1 - beta) for item, beta in zip(moments, (spec.beta1, spec.beta2), strict=True)
            )
            step = first / (second.sqrt() + spec.epsilon)
            decay, scale = spec.weight_decay * (weight.ndim >= 2), 1.0
        wanted = weight - LEARNING_RATE * (decay * weight + scale * step)
        # Fifteen matmuls whose sums have at most as many terms as the matrix is wide, each rounded once.
        lost = 15 * max(weight.shape) * NEWTON_SCHULZ * ROUNDING if weight.ndim == 2 else 2**8 * ROUNDING
        allowed = LEARNING_RATE * scale * lost * step.norm() + 2 * ROUNDING * weight.norm()
        if not float((moved - wanted).norm()) <= float(allowed):
            wrong.append(name)
    return wrong
