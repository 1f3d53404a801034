"""The updater of float32 and bfloat16 runs: data ranks hold the same weights in float32 and move them alike.

Gradients are added up over the data ranks (``parallel.data.replicate``), clipped by the norm over all ranks of the model, and
handed to torch's AdamW. Data ranks hold the same bits, so the first of them alone answers for the state.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

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
from trainwright_trainer.parallel.data.replicate import GradientBuckets
from trainwright_trainer.parts import Parts
from trainwright_trainer.updater import ReadTensor, StateTensor


class ReplicatedAdamW:
    """``Updater`` of ``model``, whose parameters are float32 and stay on their device."""

    def __init__(self, model: nn.Module, parts: Parts, spec: OptimizerSpec, mesh: Mesh) -> None:
        self.optimizer = FusedAdamW(list(model.parameters()), spec)
        self._weights = dict(model.named_parameters())
        self._parameters = list(self._weights.values())
        self._clip_norm = spec.clip_norm
        self._parts = parts.held
        self._order = parts.order
        self._model_axis, self._world = mesh.model, mesh.world
        self._answers = mesh.data.rank == 0
        twins = {self._weights[name] for name in parts.twins}
        self._buckets = GradientBuckets(self._parameters, mesh.data, twins) if mesh.data.ranks > 1 else None
        self._updates = 0

    def begin(self, learning_rate: float) -> None:
        set_learning_rate(self.optimizer, learning_rate)
        if self._buckets:
            self._buckets.clear()
        else:
            for weight in self._parameters:
                weight.grad = None

    def end_round(self) -> None:
        """Autograd adds the next round's gradients to this one's."""

    def last_round(self) -> None:
        if self._buckets:
            self._buckets.send_as_ready()

    def complete(self, names: Collection[str]) -> None:
        if self._buckets:
            self._buckets.complete(self._weights[name] for name in names)

    def finish(self) -> None:
        if self._buckets:
            self._buckets.wait()

    def grad_norm(self) -> Tensor:
        counted = [weight for name, weight in self._weights.items() if self._parts[name].counted]
        return norm_over(self._model_axis, global_norm(counted))

    def update(self, norm: Tensor) -> None:
        clip(self._parameters, norm, self._clip_norm)
        self.optimizer.step()
        self._updates += 1

    def skip(self) -> None:
        """Nothing was observed, and ``begin`` forgets the gradients."""

    def not_finite(self) -> str | None:
        return first_not_finite(self._weights, self._order, self._world)

    def numbers(self, step: int) -> dict[str, float]:
        return {}

    def state(self) -> list[StateTensor]:
        return [
            StateTensor(f"{kind}.{name}", tensor, part=self._parts[name].slice)
            for kind, name, tensor in self._named_state()
            if self._answers and self._parts[name].counted
        ]

    def position(self) -> dict[str, Any]:
        """AdamW corrects its moments by the number of updates, which is not that of steps where some were skipped."""
        return {"updates": self._updates}

    def restore(self, read: ReadTensor, position: dict[str, Any]) -> None:
        """One tensor at a time is in host memory."""
        with torch.no_grad():
            for kind, name, tensor in self._named_state():
                tensor.copy_(read(f"{kind}.{name}", self._parts[name].slice))
        self._updates = position["updates"]
        set_updates(self.optimizer, self._updates)

    def _named_state(self) -> list[tuple[str, str, Tensor]]:
        """Kind, weight and tensor."""
        weights = [("model", name, weight.detach()) for name, weight in self._weights.items()]
        return weights + [
            (f"optimizer.{moment}", name, self.optimizer.state[weight][moment])
            for moment in MOMENTS
            for name, weight in self._weights.items()
        ]
