"""The FP8-LM implementation of ``Updater``: gradients, optimizer and weights in 8 and 16 bits.

    O1   gradients kept and reduced in E4M3; float32 masters and moments
    O2   masters in float16, moments in E4M3 and float16: 6 bytes per parameter with the gradient
    O3   O2 with each tensor's state on one rank; all ranks have E4M3 replicas of the weights

A step: the backward pass fills ``FP8Gradients`` bucket by bucket; clipping changes their scales;
``ScaledAdamW`` updates the masters; at O3 ``FP8ModelWeights`` broadcasts the weights. With the optimizer in
the backward pass each bucket is updated there, and gradients are not kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from trainwright.contracts.checkpoint import block_scale_name
from trainwright.contracts.precision_spec import FP8Level
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory import keeps_weight_operands
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.parameter_index import ParameterIndex, is_writer
from trainwright_trainer.distributed.shard_spec import ShardSpecs, full_slice
from trainwright_trainer.fp8.compute.conversion import ConvertedModel, fp8_weights
from trainwright_trainer.fp8.compute.formats import E4M3, LARGEST, amax_of, cast, scale_for, widen
from trainwright_trainer.fp8.compute.weight import aligned_scales
from trainwright_trainer.fp8.state.gradients import FP8Gradients
from trainwright_trainer.fp8.state.model_weights import FP8ModelWeights
from trainwright_trainer.fp8.state.optimizer import (
    ScaledAdamW,
    ScaleGranularity,
    StateBuffer,
    StateFormats,
    UpdateCounts,
    requantize,
    state_formats,
)
from trainwright_trainer.fp8.state.row_layout import (
    BUCKET_ELEMENTS,
    ROW,
    Bucket,
    ParamSlot,
    make_row_layout,
    view_of,
)
from trainwright_trainer.fp8.state.segments import Segments
from trainwright_trainer.fp8.state.weight_operands import WeightOperands
from trainwright_trainer.optim.updater import ReadTensor, StateTensor


class FP8Updater:
    """Holds the weights, gradients and optimizer of a converted model."""

    def __init__(
        self,
        converted: ConvertedModel,
        initial: Mapping[str, Tensor] | None,
        shard_specs: ShardSpecs,
        spec: RunSpec,
        mesh: Mesh,
        formats: StateFormats | None = None,
        bucket_elements: int = BUCKET_ELEMENTS,
    ) -> None:
        """Take over the weights of a converted model.

        Args:
            initial: float32 weights by canonical name, preferably on the CPU: each is moved separately, and
                none is kept. None if a checkpoint is read next.
            formats: overrides those of the spec.
        """
        fp8 = spec.precision.fp8
        assert fp8 is not None
        self._mesh = mesh
        self._shard_specs = shard_specs
        self.requantized_tensors = 0
        """Number of tensors, over all ranks, that the last ``restore`` could not take as stored."""
        self._amax_history = converted.amax_history
        self._clip_norm = spec.optimizer.clip_norm
        self._observe_every_steps = fp8.observe_every_steps
        sharded = fp8.level is FP8Level.O3
        self.layout = make_row_layout(
            {name: shard_specs.local[name].slice for name in converted.weights},
            mesh.data.ranks,
            mesh.data.rank,
            sharded,
            bucket_elements * mesh.tensor.ranks,
        )
        self.optimizer = ScaledAdamW(
            self.layout, formats or state_formats(spec.optimizer, fp8), spec.optimizer, spec.seed, mesh.device
        )
        update_bucket = self._update_bucket if fp8.optimizer_in_backward else None
        not_primary = [name for name in converted.weights if not shard_specs.local[name].is_primary]
        self.gradients = FP8Gradients(
            converted.weights, self.layout, mesh, update_bucket, not_primary, shard_specs.partial_gradients
        )
        order = sorted(shard_specs.forward_order, key=shard_specs.forward_order.__getitem__)
        local = [slot.name for slot in self.layout.slots]
        self._weight_index = ParameterIndex(order, local, shard_specs, mesh.model)
        in_fp8 = fp8_weights(order, fp8)
        self._layer_index = ParameterIndex(
            [name for name in order if name in in_fp8], self._amax_history.names, shard_specs, mesh.model
        )
        self._cast_scale = aligned_scales(len(self.layout.slots), mesh.device)
        self._model_weights = FP8ModelWeights(self.layout, mesh.data) if sharded else None
        self._first_rows = self.layout.first_rows()
        self._step = 0
        self._learning_rate = 0.0
        self._observing = False
        self._update_counts = torch.zeros(2, dtype=torch.int64, device=mesh.device)
        if initial is not None:
            self._store_initial(initial)
        self._attach(converted)
        in_layers = self._amax_history.names if keeps_weight_operands(spec) else []
        self.operands = WeightOperands([converted.weights[name] for name in in_layers])
        self._sync_weights()

    def begin_step(self, learning_rate: float) -> None:
        self._learning_rate = learning_rate
        step = self._step + 1
        self._observing = step == 1 or step % self._observe_every_steps == 0
        self._update_counts.zero_()
        self.gradients.begin(self._observing)
        if self.gradients.updates_in_backward:
            self.optimizer.begin_update(learning_rate)

    def end_micro_batch(self) -> None:
        self._amax_history.end_micro_batch()

    def begin_last_micro_batch(self) -> None:
        self.gradients.reduce_when_ready()

    def mark_ready(self, names: Collection[str]) -> None:
        self.gradients.mark_ready(names)

    def wait_for_gradients(self) -> None:
        self._amax_history.end_micro_batch()
        self.gradients.wait()
        self._amax_history.collect(self._mesh.stage)

    def grad_norm(self) -> Tensor:
        """Also infinite if a layer's input or output gradient was infinite, because clamped casts would hide that."""
        return self.gradients.norm(self._amax_history.finite())

    def update(self, norm: Tensor) -> None:
        if not self.gradients.updates_in_backward:
            self.gradients.clip(norm, self._clip_norm)
            self.optimizer.begin_update(self._learning_rate)
            gradients = self.gradients
            self._count(
                self.optimizer.update_all(gradients.codes, gradients.scale, gradients.amax, self._observing)
            )
        self._sync_weights()
        self._amax_history.end_step(self._mesh.stage)
        self._end_step()

    def skip(self) -> None:
        self._amax_history.skip_step(self._mesh.stage)
        self._end_step()

    def _end_step(self) -> None:
        self._step += 1
        self.gradients.end_step()

    def non_finite_tensor(self) -> str | None:
        """Layer inputs come first; then, weight by weight backwards, the layer's output gradient and the
        weight's gradient.
        """
        amaxes = {name: amax for name, (amax, _) in self._amax_history.observed(self._layer_index).items()}
        names, of_gradients = (
            self._weight_index.names,
            self._weight_index.all_gather(self.gradients.amax).tolist(),
        )
        amaxes |= {f"{name}:gradient": amax for name, amax in zip(names, of_gradients, strict=True)}
        order = [f"{name}:input" for name in names]
        for name in reversed(names):
            order += [f"{name}:output_gradient", f"{name}:gradient"]
        return next((tensor for tensor in order if not math.isfinite(amaxes.get(tensor, 0.0))), None)

    def metrics(self, _: int) -> dict[str, float]:
        if not self._observing:
            return {}
        return self._rounding_metrics() | dict(self._tensor_metrics())

    def state(self) -> list[StateTensor]:
        """The tensors of the weights that this rank writes; rank 0 adds the vectors for all weights. Data ranks of a
        node have the same weights, and divide them.
        """
        vectors = self._vectors()  # all ranks of the model axis must call this
        primary = [slot for slot in self.layout.local_slots if self._shard_specs.local[slot.name].is_primary]
        if not self.layout.sharded:
            written = self._mesh.share_of_writing({slot.name: slot.rows for slot in primary}, self._mesh.data)
            primary = [slot for slot in primary if slot.name in written]
        found = [item for slot in primary for item in self._state_of(slot)]
        if self._mesh.rank == 0:
            found += [StateTensor(f"fp8.{name}", tensor) for name, tensor in vectors.items()]
        return found

    def scalars(self) -> dict[str, Any]:
        return {"updates": self.optimizer.updates}

    def restore(self, read: ReadTensor, scalars: dict[str, Any]) -> None:
        self._step, self.optimizer.updates = scalars["step"], scalars["updates"]
        requantized = torch.zeros(len(self.layout.slots), device=self._mesh.device)
        for prefix, kind in self._prefixed():
            for slot in self.layout.local_slots:
                requantized[slot.index] += self._restore_codes(read, prefix, kind, slot)
            for slot in self.layout.slots if kind.format.scaled is ScaleGranularity.TENSOR else ():
                kind.scale[slot.index] = read(f"{prefix}_scale.{slot.name}", full_slice(()))
        self.requantized_tensors = int(
            self._weight_index.all_gather(self._mesh.stage.all_reduce_max(requantized)).sum()
        )
        vectors = {name: read(f"fp8.{name}", full_slice(now.shape)) for name, now in self._vectors().items()}
        for amax, kind in zip(self._weight_index.take(vectors["amax"]), self._buffers(), strict=True):
            kind.amax.copy_(amax)
        self.gradients.base_scale.copy_(self._weight_index.take(vectors["gradient_scale"]))
        self.gradients.headroom.factor.copy_(self._weight_index.take(vectors["headroom"]))
        self._amax_history.restore(
            {name: self._layer_index.take(vectors[name], dim=-2) for name in self._amax_history.state()}
        )
        self._sync_weights()

    def _update_bucket(self, bucket: Bucket, segments: Segments, codes: Tensor) -> None:
        scale, amax = self.gradients.scale, self.gradients.amax
        self._count(
            self.optimizer.update(
                bucket.local_range, bucket.slot_indices, segments, codes, scale, amax, self._observing
            )
        )

    def _count(self, counts: UpdateCounts) -> None:
        self._update_counts += torch.stack(counts)

    def _sync_weights(self) -> None:
        """Send all ranks the weights that the owners have updated, and slices of one weight its amax; cast what matmuls
        read.
        """
        axis = self._mesh.stage if self.layout.sharded else self._mesh.tensor
        if axis.ranks > 1:
            known = torch.stack([kind.amax for kind in self._buffers()])
            for kind, amax in zip(self._buffers(), axis.all_reduce_max(known), strict=True):
                kind.amax.copy_(amax)
        self._cast_scale.copy_(scale_for(self.optimizer.master.amax, E4M3, self._cast_scale))
        if self._model_weights is not None:
            self._model_weights.refresh(self.optimizer.master, self._cast_scale)
        self.operands.refresh()

    def _store_initial(self, initial: Mapping[str, Tensor]) -> None:
        """Store the initial weights, rounded to nearest; every rank knows the scales of all."""
        master = self.optimizer.master
        amaxes = torch.stack([amax_of(initial[slot.name]) for slot in self.layout.slots])
        master.amax.copy_(self._mesh.tensor.all_reduce_max(amaxes.to(self._mesh.device)))
        if master.format.scaled is ScaleGranularity.TENSOR:
            master.scale.copy_(scale_for(master.amax, master.format.dtype))
        for slot in self.layout.slots:
            if slot.name in self._first_rows:
                scaled = initial[slot.name].to(self._mesh.device) / master.scale[slot.index]
                dtype = master.format.dtype
                self._view(master, slot).copy_(cast(scaled, dtype) if dtype in LARGEST else scaled)

    def _attach(self, converted: ConvertedModel) -> None:
        """Attach the layers' weights to their values."""
        master = self.optimizer.master
        one = torch.ones((), device=self._mesh.device)
        for slot in self.layout.slots:
            cast_scale = self._cast_scale[slot.index]
            if self._model_weights is None:
                codes, scale = self._view(master, slot), master.scale[slot.index]
            else:
                codes = self._model_weights.codes_of(slot)
                scale = cast_scale if len(slot.shape) > 1 else one
            converted.weights[slot.name].attach(codes, scale, cast_scale)

    def _buffers(self) -> tuple[StateBuffer, StateBuffer, StateBuffer]:
        return self.optimizer.master, self.optimizer.first, self.optimizer.second

    def _prefixed(self) -> Iterator[tuple[str, StateBuffer]]:
        """Each kind of value with the prefix of its names in a checkpoint: masters, first and second moments."""
        states = self.optimizer.spec.states
        return zip(("model", *(f"optimizer.{state}" for state in states)), self._buffers(), strict=True)

    def _view(self, kind: StateBuffer, slot: ParamSlot) -> Tensor:
        """A local weight's codes, in its shape."""
        return view_of(kind.codes, self._first_rows[slot.name], slot)

    def _state_of(self, slot: ParamSlot) -> Iterator[StateTensor]:
        for prefix, kind in self._prefixed():
            codes, name = self._view(kind, slot), f"{prefix}.{slot.name}"
            scale, part = f"{prefix}_scale.{slot.name}", self._shard_specs.local[slot.name]
            if kind.format.scaled is ScaleGranularity.NOTHING:
                yield StateTensor(name, codes, part=slot.box)
                continue
            yield StateTensor(name, codes, scale, slot.box)
            if kind.format.scaled is ScaleGranularity.ROW:
                yield StateTensor(_block_scale_name(scale, slot), kind.scale[self._rows_of(slot)])
            elif is_writer(part):
                yield StateTensor(scale, kind.scale[slot.index])

    def _rows_of(self, slot: ParamSlot) -> slice:
        first = self._first_rows[slot.name]
        return slice(first, first + slot.rows)

    def _restore_codes(self, read: ReadTensor, prefix: str, kind: StateBuffer, slot: ParamSlot) -> bool:
        """Fill a local weight's codes, and its scales by block; returns whether values had to be rounded
        again.
        """
        name, scale = f"{prefix}.{slot.name}", f"{prefix}_scale.{slot.name}"
        alike = None if self.layout.sharded else self._mesh.data
        if kind.format.scaled is not ScaleGranularity.ROW:
            read.into(self._view(kind, slot), name, slot.box, alike)
            return False
        rows = self._rows_of(slot)
        if read.is_stored_slice(name, slot.box):
            read.into(self._view(kind, slot), name, slot.box, alike)
            read.into(kind.scale[rows], _block_scale_name(scale, slot), full_slice((slot.rows,)), alike)
            return False
        numbers = torch.zeros(slot.rows, ROW)
        view_of(numbers, 0, slot).copy_(read.dequantized(name, slot.box))
        codes, scales = requantize(numbers, kind.format, never_zero=kind is self.optimizer.second)
        _copy_codes(kind.codes[rows], codes)
        kind.scale[rows] = scales.to(kind.scale.device)
        return not torch.equal(widen(codes, torch.float32) * scales[:, None], numbers)

    def _vectors(self) -> dict[str, Tensor]:
        """Scalars of all weights and layers of the model, in its order; equal on all ranks of the model axis."""
        vectors = {
            "amax": self._weight_index.all_gather(torch.stack([kind.amax for kind in self._buffers()])),
            "gradient_scale": self._weight_index.all_gather(self.gradients.base_scale),
            "headroom": self._weight_index.all_gather(self.gradients.headroom.factor),
        }
        of_layers = self._amax_history.state().items()
        return vectors | {name: self._layer_index.all_gather(numbers, dim=-2) for name, numbers in of_layers}

    def _rounding_metrics(self) -> dict[str, float]:
        """Rounding losses of this step, over all ranks; what several ranks have counts several times."""
        elements = sum(slot.elements for slot in self.layout.slots)
        counts = torch.tensor(
            [self.gradients.underflowed, elements, *self._update_counts], dtype=torch.float64
        )
        underflowed, elements, lost, intended = self._mesh.world.all_reduce(
            counts.to(self._mesh.device)
        ).tolist()
        return {
            "fp8_saturated": float(self._amax_history.saturated(self._layer_index)),
            "fp8_underflow": underflowed / elements,
            "fp8_lost_updates": lost / max(1, intended),
            "fp8_smallest_headroom": self._weight_index.all_gather(self.gradients.headroom.factor)
            .min()
            .item(),
        }

    def _tensor_metrics(self) -> Iterator[tuple[str, float]]:
        """Amax and scale of each tensor that is stored or multiplied in FP8."""
        kept = {
            "weight": (self.optimizer.master.amax, self._cast_scale),
            "gradient": (self.gradients.amax, self.gradients.scale),
        }
        for kind, numbers in kept.items():
            amaxes, scales = self._weight_index.all_gather(torch.stack(numbers)).tolist()
            for name, amax, scale in zip(self._weight_index.names, amaxes, scales, strict=True):
                yield f"fp8_amax/{name}:{kind}", amax
                yield f"fp8_scale/{name}:{kind}", scale
        for tensor, (amax, scale) in self._amax_history.observed(self._layer_index).items():
            yield f"fp8_amax/{tensor}", amax
            yield f"fp8_scale/{tensor}", scale


def _block_scale_name(scale: str, slot: ParamSlot) -> str:
    """Name of the tensor with the block scales of this rank's slice of a weight."""
    return block_scale_name(scale, *slot.box)


def _copy_codes(tensor: Tensor, stored: Tensor) -> None:
    """Copy codes bit by bit."""
    assert stored.dtype == tensor.dtype
    if tensor.itemsize == 1:
        tensor, stored = tensor.view(torch.uint8), stored.view(torch.uint8)
    tensor.copy_(stored)
