"""The updater of float32 and bfloat16 runs whose data ranks replicate the float32 weights and their optimizer.

Gradients are summed over the data ranks (``parallel.data.gradient_buckets``), those of replicated weights also over the
tensor ranks, clipped by the norm over all ranks of the model, and passed to the optimizer. Data ranks have the same bits,
so those of a node divide the writing of the state.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpecs
from trainwright_trainer.linear.dense import clear_sums, summed_weights
from trainwright_trainer.linear.weight_casts import WeightCasts
from trainwright_trainer.optim.clip import clip, global_norm, norm_over
from trainwright_trainer.optim.non_finite import first_non_finite
from trainwright_trainer.optim.optimizer import named_states, set_learning_rate, set_updates
from trainwright_trainer.optim.registry import build_optimizer
from trainwright_trainer.optim.updater import ReadTensor, StateTensor, observes
from trainwright_trainer.optim.whole_weights import WholeWeights
from trainwright_trainer.parallel.data.gradient_buckets import GradientBuckets
from trainwright_trainer.parallel.tensor.replicated_weights import sum_gradients


class ReplicatedUpdater:
    """``Updater`` of ``model``, whose parameters are float32 and stay on their device."""

    def __init__(
        self,
        model: nn.Module,
        shard_specs: ShardSpecs,
        spec: OptimizerSpec,
        mesh: Mesh,
        casts: WeightCasts | None = None,
    ) -> None:
        self._spec = spec
        self._weights = dict(model.named_parameters())
        primary = [name for name in self._weights if shard_specs.local[name].is_primary]
        slices = {name: shard_specs.local[name].slice for name in self._weights}
        whole = WholeWeights(
            shard_specs.forward_order,
            primary,
            [mesh.model],
            slices,
            copies=mesh.data,
            rows=mesh.alone,
            tensor=mesh.tensor,
        )
        self.optimizer = build_optimizer(self._weights, spec, whole)
        self._parameters = list(self._weights.values())
        self._clip_norm = spec.clip_norm
        self._shard_specs = shard_specs.local
        self._order = shard_specs.forward_order
        self._model_axis, self._world, self._tensor = mesh.model, mesh.world, mesh.tensor
        self._partial = [self._weights[name] for name in shard_specs.partial_gradients]
        self._written = mesh.share_of_writing(
            {name: self._weights[name].numel() for name in primary}, mesh.data
        )
        self._data = mesh.data
        tied_replicas = {self._weights[name] for name in shard_specs.tied_replicas}
        self._buckets = (
            GradientBuckets(self._parameters, mesh.data, tied_replicas) if mesh.data.ranks > 1 else None
        )
        self.casts = casts
        if casts:
            casts.refresh()
        self._summed = summed_weights(model)
        self._updates = 0
        self._casts_are_current = True

    def begin_step(self, learning_rate: float) -> None:
        set_learning_rate(self.optimizer, learning_rate)
        if self.casts and not self._casts_are_current:
            self.casts.refresh()  # one of them may be why the last step was not finite
        self._casts_are_current = False
        if self._buckets:
            self._buckets.clear()
        else:
            for weight in self._parameters:
                if weight not in self._summed:
                    weight.grad = None
            clear_sums(self._summed)

    def end_micro_batch(self) -> None:
        """Autograd adds the next micro batch's gradients to this one's."""

    def begin_last_micro_batch(self) -> None:
        if self._buckets:
            self._buckets.reduce_when_ready()

    def mark_ready(self, names: Collection[str]) -> None:
        if self._buckets:
            self._buckets.mark_ready(self._weights[name] for name in names)

    def wait_for_gradients(self) -> None:
        if self._buckets:
            self._buckets.wait()
        sum_gradients(self._partial, self._tensor)

    def grad_norm(self) -> Tensor:
        counted = [weight for name, weight in self._weights.items() if self._shard_specs[name].is_primary]
        return norm_over(self._model_axis, global_norm(counted))

    def update(self, norm: Tensor) -> None:
        clip(self._parameters, norm, self._clip_norm)
        self.optimizer.step()
        if self.casts:
            self.casts.refresh()
        self._casts_are_current = True
        self._updates += 1

    def skip(self) -> None:
        """Nothing was observed, and ``begin_step`` clears the gradients."""

    def non_finite_tensor(self) -> str | None:
        return first_non_finite(self._weights, self._order, self._world)

    def metrics(self, step: int) -> dict[str, float]:
        return self.optimizer.metrics() if observes(step) else {}

    def state(self) -> list[StateTensor]:
        """Data ranks of a node have the same weights, and each writes some of them."""
        return [
            StateTensor(f"{kind}.{name}", tensor, part=self._shard_specs[name].slice)
            for kind, name, tensor in self._named_state()
            if name in self._written
        ]

    def scalars(self) -> dict[str, Any]:
        """An optimizer may depend on the number of updates, which excludes skipped steps."""
        return {"updates": self._updates}

    def restore(self, read: ReadTensor, scalars: dict[str, Any]) -> None:
        """One data rank reads for all. It has one tensor at a time in host memory."""
        for kind, name, tensor in self._named_state():
            read.into(tensor, f"{kind}.{name}", self._shard_specs[name].slice, self._data)
        self._updates = scalars["updates"]
        set_updates(self.optimizer, self._updates)
        if self.casts:
            self.casts.refresh()

    def _named_state(self) -> list[tuple[str, str, Tensor]]:
        """Kind, weight and tensor."""
        weights = [("model", name, weight.detach()) for name, weight in self._weights.items()]
        return weights + named_states(self.optimizer, self._weights, self._spec)
