"""The updater of float32 and bfloat16 runs whose data ranks shard what ``optim.replicated_updater`` copies
(``parallel.data.zero``).

What an optimizer computes for each element independently is the same on every rank. The gradient norm involves all
elements, and so do the norms that some optimizers take of a weight: they are summed over the ranks that have them
(``optim.whole_weights``). If every rank has all gradients, the gradient norm equals the replicated run's bit for bit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.linear.weight_casts import WeightCasts
from trainwright_trainer.optim.clip import clip, global_norm, norm_over
from trainwright_trainer.optim.non_finite import first_non_finite
from trainwright_trainer.optim.optimizer import named_states, set_learning_rate, set_updates
from trainwright_trainer.optim.registry import build_optimizer
from trainwright_trainer.optim.updater import ReadTensor, StateTensor, observes
from trainwright_trainer.optim.whole_weights import WholeWeights
from trainwright_trainer.parallel.data.zero import ModelShard
from trainwright_trainer.parallel.tensor.replicated_weights import sum_gradients


class ShardedUpdater:
    """``Updater`` of this rank's shard of a float32 model."""

    def __init__(
        self, shard: ModelShard, spec: OptimizerSpec, mesh: Mesh, casts: WeightCasts | None = None
    ) -> None:
        self._shard = shard
        self.casts = casts
        if casts:
            casts.refresh()
        self._updated = list(shard.updated.values())
        self._written = [
            name for name in shard.updated if name in shard.written and shard.shard_specs[name].is_primary
        ]
        whole = WholeWeights(
            shard.order,
            self._written,
            [mesh.model, mesh.shard],
            shard.tensor_slices,
            copies=mesh.replicas,
            rows=mesh.shard if shard.rows_sharded else mesh.alone,
            tensor=mesh.tensor,
        )
        self.optimizer = build_optimizer(shard.updated, spec, whole)
        self._spec = spec
        self._clip_norm = spec.clip_norm
        self._mesh = mesh
        self._partial = [
            weight for name, weight in shard.weights.items() if shard.shard_specs[name].has_partial_gradient
        ]
        self._updates = 0
        self._is_up_to_date = True

    def begin_step(self, learning_rate: float) -> None:
        set_learning_rate(self.optimizer, learning_rate)
        if not self._is_up_to_date:
            self._send_weights()  # one of them may be why the last step was not finite
        self._is_up_to_date = False
        self._shard.gradients.clear()

    def end_micro_batch(self) -> None:
        self._shard.gradients.end_micro_batch()

    def begin_last_micro_batch(self) -> None:
        self._shard.gradients.reduce_when_ready()

    def mark_ready(self, names: Collection[str]) -> None:
        self._shard.gradients.mark_ready(self._shard.weights[name] for name in names)

    def wait_for_gradients(self) -> None:
        self._shard.gradients.wait()
        sum_gradients(self._partial, self._mesh.tensor)

    def grad_norm(self) -> Tensor:
        shard, mesh = self._shard, self._mesh
        counted = [
            weight
            for name, weight in shard.weights.items()
            if shard.shard_specs[name].is_primary
            and not (shard.gradients_sharded and name not in shard.written)
        ]
        norm = global_norm(counted).to(mesh.device)  # the norm of no gradients is on the CPU
        return norm_over(mesh.model, norm_over(mesh.shard, norm) if shard.gradients_sharded else norm)

    def update(self, norm: Tensor) -> None:
        clip(self._updated, norm, self._clip_norm)
        self.optimizer.step()
        self._send_weights()
        self._is_up_to_date = True
        self._updates += 1

    def skip(self) -> None:
        """Nothing was observed, and ``begin_step`` clears the gradients."""

    def non_finite_tensor(self) -> str | None:
        return first_non_finite(self._shard.weights, self._shard.order, self._mesh.world)

    def metrics(self, step: int) -> dict[str, float]:
        return self.optimizer.metrics() if observes(step) else {}

    def state(self) -> list[StateTensor]:
        """Replicas on a node have the same shards, and each writes some of them."""
        sizes = {name: self._shard.updated[name].numel() for name in self._written}
        written = self._mesh.share_of_writing(sizes, self._mesh.replicas)
        weights = [("model", name, weight.detach()) for name, weight in self._shard.updated.items()]
        return [
            StateTensor(f"{kind}.{name}", tensor, part=self._shard.shard_specs[name].slice)
            for kind, name, tensor in weights + self._states()
            if name in written
        ]

    def scalars(self) -> dict[str, Any]:
        """An optimizer may depend on the number of updates, which excludes skipped steps."""
        return {"updates": self._updates}

    def restore(self, read: ReadTensor, scalars: dict[str, Any]) -> None:
        """A rank reads its own shards, or the first of their replicas reads for all, as of what is not sharded. One
        tensor at a time is in host memory.
        """
        slices, replicas = self._shard.shard_specs, self._mesh.replicas
        ranks_alike = replicas if self._shard.rows_sharded else self._mesh.data
        for name, weight in self._shard.weights.items():
            read.into(weight, f"model.{name}", slices[name].slice, ranks_alike)
        for kind, name, tensor in self._states():
            read.into(tensor, f"{kind}.{name}", slices[name].slice, replicas)
        self._updates = scalars["updates"]
        set_updates(self.optimizer, self._updates)
        if self.casts:
            self.casts.refresh()

    def _send_weights(self) -> None:
        """Cast the weights that this rank updates, and exchange weights with the ranks that update the others."""
        if self.casts:
            self.casts.refresh(frozenset(self._updated))
        self._shard.broadcast_params()

    def _states(self) -> list[tuple[str, str, Tensor]]:
        """Kind, weight and tensor of the states on this rank."""
        updated = dict(self._shard.updated)
        return named_states(self.optimizer, updated, self._spec)
