"""The updater of float32 and bfloat16 runs whose data ranks share what ``optim.replicated`` copies (``parallel.data.shares``).

AdamW looks at one element at a time, so it does not matter to the result who moves which. What does cross elements is the
norm of all gradients: a sum over those who hold them. Where every rank has all of them, it is the replicated run's, bit
for bit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from trainwright.contracts.training_spec import OptimizerSpec
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.optim.adamw import (
    MOMENTS,
    FusedAdamW,
    set_learning_rate,
    set_updates,
)
from trainwright_trainer.optim.clip import clip, global_norm, norm_over
from trainwright_trainer.optim.finite import first_not_finite
from trainwright_trainer.parallel.data.shares import Shares
from trainwright_trainer.updater import ReadTensor, StateTensor


class ShardedAdamW:
    """``Updater`` of this rank's share of a model in float32."""

    def __init__(self, shares: Shares, spec: OptimizerSpec, mesh: Mesh) -> None:
        self._shares = shares
        self._moved = list(shares.moved.values())
        self._optimizer = FusedAdamW(self._moved, spec)
        self._clip_norm = spec.clip_norm
        self._mesh = mesh
        self._updates = 0

    def begin(self, learning_rate: float) -> None:
        set_learning_rate(self._optimizer, learning_rate)
        self._shares.gradients.clear()

    def end_round(self) -> None:
        self._shares.gradients.end_round()

    def last_round(self) -> None:
        self._shares.gradients.send_as_ready()

    def complete(self, names: Collection[str]) -> None:
        self._shares.gradients.complete(self._shares.weights[name] for name in names)

    def finish(self) -> None:
        self._shares.gradients.wait()

    def grad_norm(self) -> Tensor:
        shares, mesh = self._shares, self._mesh
        counted = [
            weight
            for name, weight in shares.weights.items()
            if shares.parts[name].counted and not (shares.gradients_cut and name not in shares.spoken_for)
        ]
        norm = global_norm(counted).to(mesh.device)  # of no gradients it is a number on the CPU
        return norm_over(mesh.model, norm_over(mesh.shard, norm) if shares.gradients_cut else norm)

    def update(self, norm: Tensor) -> None:
        clip(self._moved, norm, self._clip_norm)
        self._optimizer.step()
        self._shares.hand_round()
        self._updates += 1

    def skip(self) -> None:
        """Nothing was observed, and ``begin`` forgets the gradients."""

    def not_finite(self) -> str | None:
        return first_not_finite(self._shares.weights, self._shares.order, self._mesh.world)

    def numbers(self, step: int) -> dict[str, float]:
        return {}

    def state(self) -> list[StateTensor]:
        if self._mesh.replicas.rank > 0:
            return []
        weights = [("model", name, weight.detach()) for name, weight in self._shares.moved.items()]
        return [
            StateTensor(f"{kind}.{name}", tensor, part=self._shares.parts[name].slice)
            for kind, name, tensor in weights + self._moments()
            if name in self._shares.spoken_for and self._shares.parts[name].counted
        ]

    def position(self) -> dict[str, Any]:
        """AdamW corrects its moments by the number of updates, which is not that of steps where some were skipped."""
        return {"updates": self._updates}

    def restore(self, read: ReadTensor, position: dict[str, Any]) -> None:
        """One tensor at a time is in host memory. Ranks read for themselves: one that fails must keep none waiting."""
        with torch.no_grad():
            for name, weight in self._shares.weights.items():
                weight.copy_(read(f"model.{name}", self._shares.parts[name].slice))
            for kind, name, tensor in self._moments():
                tensor.copy_(read(f"{kind}.{name}", self._shares.parts[name].slice))
        self._updates = position["updates"]
        set_updates(self._optimizer, self._updates)

    def _moments(self) -> list[tuple[str, str, Tensor]]:
        """Kind, weight and tensor of what this rank moves."""
        return [
            (f"optimizer.{moment}", name, self._optimizer.state[weight][moment])
            for moment in MOMENTS
            for name, weight in self._shares.moved.items()
        ]
