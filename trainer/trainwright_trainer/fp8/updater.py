"""The FP8-LM recipe behind the ``Updater`` protocol: gradients, optimizer and weights in 8 and 16 bits.

    O1   gradients kept and reduced in E4M3; float32 masters and moments
    O2   masters in float16, moments in E4M3 and float16: 6 bytes a parameter with the gradient
    O3   O2 with each tensor's state on one rank; all ranks hold E4M3 copies of the weights

A step: the backward pass fills ``Gradients`` bucket by bucket; clipping moves their scales; ``ScaledAdamW`` moves the
masters; at O3 ``Published`` hands the weights round. With released gradients the update happens bucket by bucket
inside the backward pass, and gradients are never kept.
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
from trainwright_trainer.fp8.convert import Converted, products
from trainwright_trainer.fp8.formats import E4M3, LARGEST, amax_of, cast, scale_for, widen
from trainwright_trainer.fp8.gradients import Gradients
from trainwright_trainer.fp8.layout import BUCKET_ELEMENTS, ROW, Bucket, Tenant, lay_out, view_of
from trainwright_trainer.fp8.optimizer import (
    Formats,
    Moved,
    Numbers,
    Scaled,
    ScaledAdamW,
    formats_of,
    round_anew,
)
from trainwright_trainer.fp8.published import Published
from trainwright_trainer.fp8.roster import Roster, speaks_for
from trainwright_trainer.fp8.stretches import Stretches
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.parts import Parts, whole
from trainwright_trainer.updater import ReadTensor, StateTensor

_PREFIXES = ("model", "optimizer.exp_avg", "optimizer.exp_avg_sq")
"""Of the names of a checkpoint's tensors: masters, first and second moments."""


class FP8Updater:
    """Holds everything that a converted model learns with."""

    def __init__(
        self,
        converted: Converted,
        initial: Mapping[str, Tensor],
        parts: Parts,
        spec: RunSpec,
        mesh: Mesh,
        formats: Formats | None = None,
        bucket_elements: int = BUCKET_ELEMENTS,
    ) -> None:
        """Take over the weights of a converted model.

        Args:
            initial: float32 weights by canonical name, best on the CPU: each is moved by itself, and none is kept.
            formats: other ones than the recipe's.
        """
        fp8 = spec.precision.fp8
        assert fp8 is not None
        self._mesh = mesh
        self._parts = parts
        self.rounded_anew = 0
        """Tensors that the last ``restore``, over all ranks, could not take as they were stored."""
        self._records = converted.records
        self._clip_norm = spec.optimizer.clip_norm
        self._observe_every_steps = fp8.observe_every_steps
        cut = fp8.level is FP8Level.O3
        self.layout = lay_out(
            {name: parts.held[name].slice for name in converted.weights},
            mesh.data.ranks,
            mesh.data.rank,
            cut,
            bucket_elements * mesh.tensor.ranks,
        )
        self.optimizer = ScaledAdamW(
            self.layout, formats or formats_of(fp8), spec.optimizer, spec.seed, mesh.device
        )
        release = self._release if fp8.release_gradients else None
        uncounted = [name for name in converted.weights if not parts.held[name].counted]
        self.gradients = Gradients(converted.weights, self.layout, mesh, release, uncounted)
        order = sorted(parts.order, key=parts.order.__getitem__)
        held = [tenant.name for tenant in self.layout.tenants]
        self._weights = Roster(order, held, parts, mesh.model)
        in_fp8 = products(order, fp8)
        self._layers = Roster(
            [name for name in order if name in in_fp8], self._records.names, parts, mesh.model
        )
        self._cast_scale = torch.ones(len(self.layout.tenants), device=mesh.device)
        self._published = Published(self.layout, mesh.data) if cut else None
        self._first_rows = self.layout.first_rows()
        self._step = 0
        self._learning_rate = 0.0
        self._observing = False
        self._moved = torch.zeros(2, dtype=torch.int64, device=mesh.device)
        self._load(initial)
        self._attach(converted)
        self._publish()

    def begin(self, learning_rate: float) -> None:
        self._step += 1
        self._learning_rate = learning_rate
        self._observing = self._step == 1 or self._step % self._observe_every_steps == 0
        self._moved.zero_()
        self.gradients.begin(self._observing)
        if self.gradients.released:
            self.optimizer.begin_update(learning_rate)

    def end_round(self) -> None:
        self._records.end_round()

    def last_round(self) -> None:
        self.gradients.send_as_ready()

    def complete(self, names: Collection[str]) -> None:
        self.gradients.complete(names)

    def finish(self) -> None:
        self._records.end_round()
        self.gradients.wait()
        self._records.collect(self._mesh.stage)

    def grad_norm(self) -> Tensor:
        """Infinite also where a layer's input or output gradient was: clamped casts would hide it."""
        return self.gradients.norm(self._records.finite())

    def update(self, norm: Tensor) -> None:
        if not self.gradients.released:
            self.gradients.clip(norm, self._clip_norm)
            self.optimizer.begin_update(self._learning_rate)
            gradients = self.gradients
            self._count(
                self.optimizer.update_all(gradients.codes, gradients.scale, gradients.amax, self._observing)
            )
        self._publish()
        self._records.end_step(self._mesh.stage)

    def skip(self) -> None:
        self._records.drop_step(self._mesh.stage)

    def not_finite(self) -> str | None:
        """Inputs of layers come first; then, weight by weight backwards, what came out of it and its own gradient."""
        amaxes = {name: amax for name, (amax, _) in self._records.observed(self._layers).items()}
        names, of_gradients = self._weights.names, self._weights.gather(self.gradients.amax).tolist()
        amaxes |= {f"{name}:gradient": amax for name, amax in zip(names, of_gradients, strict=True)}
        order = [f"{name}:input" for name in names]
        for name in reversed(names):
            order += [f"{name}:output_gradient", f"{name}:gradient"]
        return next((tensor for tensor in order if not math.isfinite(amaxes.get(tensor, 0.0))), None)

    def numbers(self, _: int) -> dict[str, float]:
        if not self._observing:
            return {}
        return self._shares() | dict(self._of_tensors())

    def state(self) -> list[StateTensor]:
        """The tensors of the weights that this rank answers for; rank 0 adds what is one vector for all weights."""
        vectors = self._vectors()  # all ranks of the model must ask for them
        found: list[StateTensor] = []
        if self.layout.cut or self._mesh.data.rank == 0:
            answered = [one for one in self.layout.held if self._parts.held[one.name].counted]
            found += [one for tenant in answered for one in self._state_of(tenant)]
        if self._mesh.rank == 0:
            found += [StateTensor(f"fp8.{name}", tensor) for name, tensor in vectors.items()]
        return found

    def position(self) -> dict[str, Any]:
        return {"updates": self.optimizer.updates}

    def restore(self, read: ReadTensor, position: dict[str, Any]) -> None:
        self._step, self.optimizer.updates = position["step"], position["updates"]
        anew = torch.zeros(len(self.layout.tenants), device=self._mesh.device)
        for prefix, kind in self._prefixed():
            for tenant in self.layout.held:
                anew[tenant.place] += self._restore_codes(read, prefix, kind, tenant)
            for tenant in self.layout.tenants if kind.format.scaled is Scaled.TENSOR else ():
                kind.scale[tenant.place] = read(f"{prefix}_scale.{tenant.name}", whole(()))
        self.rounded_anew = int(self._weights.gather(self._mesh.stage.max(anew)).sum())
        vectors = {name: read(f"fp8.{name}", whole(now.shape)) for name, now in self._vectors().items()}
        for amax, kind in zip(self._weights.take(vectors["amax"]), self._kinds(), strict=True):
            kind.amax.copy_(amax)
        self.gradients.base.copy_(self._weights.take(vectors["gradient_scale"]))
        self.gradients.headroom.factor.copy_(self._weights.take(vectors["headroom"]))
        self._records.restore(
            {name: self._layers.take(vectors[name], dim=-2) for name in self._records.state()}
        )
        self._publish()

    def _release(self, bucket: Bucket, stretches: Stretches, codes: Tensor) -> None:
        scale, amax = self.gradients.scale, self.gradients.amax
        self._count(
            self.optimizer.update(bucket.held, bucket.places, stretches, codes, scale, amax, self._observing)
        )

    def _count(self, moved: Moved) -> None:
        self._moved += torch.stack(moved)

    def _publish(self) -> None:
        """Let all ranks know the weights that the owners have moved, and slices of one weight its amax."""
        sharing = self._mesh.stage if self.layout.cut else self._mesh.tensor
        if sharing.ranks > 1:
            known = torch.stack([kind.amax for kind in self._kinds()])
            for kind, amax in zip(self._kinds(), sharing.max(known), strict=True):
                kind.amax.copy_(amax)
        self._cast_scale.copy_(scale_for(self.optimizer.master.amax, E4M3, self._cast_scale))
        if self._published is not None:
            self._published.publish(self.optimizer.master, self._cast_scale)

    def _load(self, initial: Mapping[str, Tensor]) -> None:
        """Store the weights that training begins with, rounded to nearest; every rank knows the scales of all."""
        master = self.optimizer.master
        amaxes = torch.stack([amax_of(initial[tenant.name]) for tenant in self.layout.tenants])
        master.amax.copy_(self._mesh.tensor.max(amaxes.to(self._mesh.device)))
        if master.format.scaled is Scaled.TENSOR:
            master.scale.copy_(scale_for(master.amax, master.format.dtype))
        for tenant in self.layout.tenants:
            if tenant.name in self._first_rows:
                scaled = initial[tenant.name].to(self._mesh.device) / master.scale[tenant.place]
                dtype = master.format.dtype
                self._view(master, tenant).copy_(cast(scaled, dtype) if dtype in LARGEST else scaled)

    def _attach(self, converted: Converted) -> None:
        """Tell the layers where their weights' numbers lie."""
        master = self.optimizer.master
        one = torch.ones((), device=self._mesh.device)
        for tenant in self.layout.tenants:
            cast_scale = self._cast_scale[tenant.place]
            if self._published is None:
                codes, scale = self._view(master, tenant), master.scale[tenant.place]
            else:
                codes = self._published.codes_of(tenant)
                scale = cast_scale if len(tenant.shape) > 1 else one
            converted.weights[tenant.name].attach(codes, scale, cast_scale)

    def _kinds(self) -> tuple[Numbers, Numbers, Numbers]:
        return self.optimizer.master, self.optimizer.first, self.optimizer.second

    def _prefixed(self) -> Iterator[tuple[str, Numbers]]:
        return zip(_PREFIXES, self._kinds(), strict=True)

    def _view(self, kind: Numbers, tenant: Tenant) -> Tensor:
        """A held weight's codes, of its shape."""
        return view_of(kind.codes, self._first_rows[tenant.name], tenant)

    def _state_of(self, tenant: Tenant) -> Iterator[StateTensor]:
        for prefix, kind in self._prefixed():
            codes, name = self._view(kind, tenant), f"{prefix}.{tenant.name}"
            scale, part = f"{prefix}_scale.{tenant.name}", self._parts.held[tenant.name]
            if kind.format.scaled is Scaled.NOTHING:
                yield StateTensor(name, codes, part=tenant.box)
                continue
            yield StateTensor(name, codes, scale, tenant.box)
            if kind.format.scaled is Scaled.ROW:
                yield StateTensor(_of_blocks(scale, tenant), kind.scale[self._rows_of(tenant)])
            elif speaks_for(part):
                yield StateTensor(scale, kind.scale[tenant.place])

    def _rows_of(self, tenant: Tenant) -> slice:
        first = self._first_rows[tenant.name]
        return slice(first, first + tenant.rows)

    def _restore_codes(self, read: ReadTensor, prefix: str, kind: Numbers, tenant: Tenant) -> bool:
        """Fill a held weight's codes, and its scales by block; returns whether numbers had to be changed for that."""
        name, scale = f"{prefix}.{tenant.name}", f"{prefix}_scale.{tenant.name}"
        if kind.format.scaled is not Scaled.ROW:
            _fill(self._view(kind, tenant), read(name, tenant.box))
            return False
        rows = self._rows_of(tenant)
        if read.is_piece(name, tenant.box):
            _fill(self._view(kind, tenant), read(name, tenant.box))
            kind.scale[rows] = read(_of_blocks(scale, tenant), whole((tenant.rows,))).to(kind.scale.device)
            return False
        numbers = torch.zeros(tenant.rows, ROW)
        view_of(numbers, 0, tenant).copy_(read.real(name, tenant.box))
        codes, scales = round_anew(numbers, kind.format, never_zero=kind is self.optimizer.second)
        _fill(kind.codes[rows], codes)
        kind.scale[rows] = scales.to(kind.scale.device)
        return not torch.equal(widen(codes, torch.float32) * scales[:, None], numbers)

    def _vectors(self) -> dict[str, Tensor]:
        """Numbers of all weights and layers of the model, in its order; equal on all ranks of the model."""
        vectors = {
            "amax": self._weights.gather(torch.stack([kind.amax for kind in self._kinds()])),
            "gradient_scale": self._weights.gather(self.gradients.base),
            "headroom": self._weights.gather(self.gradients.headroom.factor),
        }
        of_layers = self._records.state().items()
        return vectors | {name: self._layers.gather(numbers, dim=-2) for name, numbers in of_layers}

    def _shares(self) -> dict[str, float]:
        """What rounding cost in this step, over all ranks; what several ranks hold counts as often."""
        elements = sum(tenant.elements for tenant in self.layout.tenants)
        counts = torch.tensor([self.gradients.flushed, elements, *self._moved], dtype=torch.float64)
        flushed, elements, lost, meant = self._mesh.world.sum(counts.to(self._mesh.device)).tolist()
        return {
            "fp8_saturated": float(self._records.saturated(self._layers)),
            "fp8_flushed": flushed / elements,
            "fp8_lost_updates": lost / max(1, meant),
            "fp8_smallest_headroom": self._weights.gather(self.gradients.headroom.factor).min().item(),
        }

    def _of_tensors(self) -> Iterator[tuple[str, float]]:
        """Amax and scale of each tensor that is kept or multiplied in FP8."""
        kept = {
            "weight": (self.optimizer.master.amax, self._cast_scale),
            "gradient": (self.gradients.amax, self.gradients.scale),
        }
        for kind, numbers in kept.items():
            amaxes, scales = self._weights.gather(torch.stack(numbers)).tolist()
            for name, amax, scale in zip(self._weights.names, amaxes, scales, strict=True):
                yield f"fp8_amax/{name}:{kind}", amax
                yield f"fp8_scale/{name}:{kind}", scale
        for tensor, (amax, scale) in self._records.observed(self._layers).items():
            yield f"fp8_amax/{tensor}", amax
            yield f"fp8_scale/{tensor}", scale


def _of_blocks(scale: str, tenant: Tenant) -> str:
    """Name of the tensor with the scales of the blocks of what is held of a weight."""
    return block_scale_name(scale, *tenant.box)


def _fill(tensor: Tensor, stored: Tensor) -> None:
    """Copy codes as they are."""
    assert stored.dtype == tensor.dtype
    if tensor.itemsize == 1:
        tensor, stored = tensor.view(torch.uint8), stored.view(torch.uint8)
    tensor.copy_(stored)
