"""AdamW with a state of 6 bytes per parameter (FP8-LM, section 3.2), computed for all weights by a few fused calls.

    master weight     float16 with a scale per tensor     2 bytes
    gradient          E4M3 with a scale per tensor        1 byte       kept by ``fp8.state.gradients``
    first moment      E4M3 with a scale per tensor        1 byte
    second moment     float16 with a scale per tensor     2 bytes

Each value is updated in float32 and stored with a new scale, rounded stochastically (``stochastic_rounding``):

    m' = β₁ m + (1 - β₁) g        v' = β₂ v + (1 - β₂) g²        w' = (1 - η λ) w - η (m' / c₁) / (√(v' / c₂) + ε)

A new scale must be known before the first value is stored, but its amax only after the last one is computed. Rather
than computing everything twice, the scale is taken from a bound on the new amax: |m'| ≤ β₁ amax(m) + (1 - β₁) amax(g),
and similarly for v; a weight changes by at most the learning rate times ``largest_update``. Codes are floating-point
numbers: a bound that is too large by less than two costs the last of 18 (E4M3) or 40 (float16) powers of two of range,
and no mantissa.

Exact moments satisfy that bound. Rounded ones may not: an m near the smallest code is rounded to it or to zero, while
its v is stored precisely. So an update is clamped to the largest one that exact moments can cause, and rounding makes
no weight jump.

Tests show that these do not work: masters in E4M3, float16 v without a scale, v in E4M3 with one scale per tensor. With
a scale per 128 elements E4M3 suffices for v too, if a v above zero never becomes zero: if v were lost but m not, the
weight would jump by m / ε.

Noise belongs to elements of the entire weight, so a rank with a slice rounds as a rank with the entire weight
would.

    R rows of this rank   P weights
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.optimizer_spec import OptimizerSpec
from trainwright.contracts.precision_spec import FP8Spec, StateFormat
from trainwright_trainer.distributed.shard_spec import Slice
from trainwright_trainer.fp8.compute.formats import E4M3, SMALLEST, cast, finite_or_inf, scale_for, widen
from trainwright_trainer.fp8.compute.stochastic_rounding import (
    step_key,
    stochastic_round,
    uniform_noise,
    weight_key,
)
from trainwright_trainer.fp8.state.row_layout import ROW, RowLayout
from trainwright_trainer.fp8.state.segments import Segments
from trainwright_trainer.runtime.compilation import fuse_on_gpu

CHUNK_ROWS = {"cpu": 2**11, "cuda": 2**20}
"""Rows processed at a time: on a CPU as many as fit its cache, on a GPU as 32-bit indices can address."""

_ROUNDED_UP = 1 + 2.0**-3
"""Stochastic rounding increases a value in E4M3 by less than this factor, and in float16 by far less."""


class ScaleGranularity(Enum):
    """The elements that share a scale."""

    NOTHING = "nothing"
    TENSOR = "tensor"
    ROW = "row"


class StorageFormat(NamedTuple):
    """How one kind of value is stored."""

    dtype: torch.dtype
    scaled: ScaleGranularity


class StateFormats(NamedTuple):
    """How the entire state is stored."""

    master: StorageFormat
    first: StorageFormat
    second: StorageFormat
    stochastic: bool = True
    """Whether values are rounded stochastically instead of to nearest."""

    clamped: bool = True
    """Whether an update is clamped to the largest one that exact moments can cause."""


FLOAT32 = StorageFormat(torch.float32, ScaleGranularity.NOTHING)
_STORAGE_FORMATS = {
    StateFormat.FLOAT32: FLOAT32,
    StateFormat.FLOAT16: StorageFormat(torch.float16, ScaleGranularity.TENSOR),
    StateFormat.E4M3: StorageFormat(E4M3, ScaleGranularity.TENSOR),
    StateFormat.E4M3_BLOCK: StorageFormat(E4M3, ScaleGranularity.ROW),
}


def state_formats(optimizer: OptimizerSpec, fp8: FP8Spec) -> StateFormats:
    """The formats that the optimizer declares, which the planner counts too."""
    first, second = optimizer.formats_in_fp8(fp8)
    return StateFormats(
        _STORAGE_FORMATS[fp8.master_format], _STORAGE_FORMATS[first], _STORAGE_FORMATS[second]
    )


class StateBuffer:
    """One kind of value for all weights of this rank: masters, first or second moments."""

    def __init__(self, format: StorageFormat, rows: int, slots: int, device: torch.device) -> None:
        self.format = format
        self.codes = torch.zeros(rows, ROW, dtype=format.dtype, device=device)
        self.scale = torch.ones(
            rows if format.scaled is ScaleGranularity.ROW else slots, dtype=torch.float32, device=device
        )
        """(R,) or (P,): what codes are multiplied with."""
        self.amax = torch.zeros(slots, dtype=torch.float32, device=device)
        """(P,): of the values before rounding."""

    def rows_of(self, rows: slice, slot_indices: Tensor, first_slot: int, new_scale: Tensor) -> StateRows:
        """Some rows, which belong to ``slot_indices``; ``new_scale`` has the scales of the tensors from
        ``first_slot`` on.
        """
        if self.format.scaled is ScaleGranularity.ROW:
            scale = self.scale[rows][:, None]
            # The old scales are copied: compiled code must not write what it reads under another name.
            return StateRows(self.codes[rows], scale.clone(), scale)
        return StateRows(
            self.codes[rows], self.scale[slot_indices][:, None], new_scale[slot_indices - first_slot][:, None]
        )

    def rescale(self, bound: Tensor, slot_indices: slice) -> Tensor:
        """Scales for storing the next values of ``slot_indices``, which are at most ``bound``."""
        if self.format.scaled is not ScaleGranularity.TENSOR:
            return torch.ones_like(bound)
        return scale_for(bound, self.format.dtype, self.scale[slot_indices])


class StateRows(NamedTuple):
    """Some rows of one kind of value."""

    codes: Tensor
    """(rows, 128): read, then written."""

    scale: Tensor
    """(rows, 1): scale of the codes that are read."""

    new_scale: Tensor
    """(rows, 1): scale of the codes that are written; itself written if each row has a scale."""


class UpdateCounts(NamedTuple):
    """How many weights an update lost to rounding."""

    lost: Tensor
    """() int64: weights that should have changed and did not."""

    intended: Tensor
    """() int64: weights that should have changed."""


class ScaledAdamW:
    """AdamW over the rows of this rank."""

    def __init__(
        self, layout: RowLayout, formats: StateFormats, spec: OptimizerSpec, seed: int, device: torch.device
    ) -> None:
        self.spec = spec
        self.formats = formats
        self.updates = 0
        """Number of updates so far, without skipped steps."""
        rows, slots = layout.local_rows, len(layout.slots)
        self.master = StateBuffer(formats.master, rows, slots, device)
        self.first = StateBuffer(formats.first, rows, slots, device)
        self.second = StateBuffer(formats.second, rows, slots, device)
        self._all_segments = layout.local_segments(device)
        first = layout.first_rows()
        self._first_rows = torch.tensor(
            [first.get(slot.name, 0) for slot in layout.slots], dtype=torch.int32, device=device
        )
        self._element_map = make_element_map([slot.box for slot in layout.slots], device)
        self._keys = torch.tensor(
            [weight_key(slot.name, seed) for slot in layout.slots], dtype=torch.int32, device=device
        )
        decays = [spec.decays(slot.name, len(slot.shape)) for slot in layout.slots]
        self._decay = torch.tensor([spec.weight_decay * chosen for chosen in decays], device=device)
        factors = [spec.learning_rate_factor(slot.name, len(slot.shape)) for slot in layout.slots]
        self._learning_rate_factor = torch.tensor(factors, device=device)
        self._largest = 1.0
        self._hyper = torch.zeros(4, device=device)
        """Learning rate, corrections of both moments, clamp of updates: a tensor, so that code is not
        recompiled."""
        self._chunk_rows = CHUNK_ROWS[device.type]
        self._update_rows = fuse_on_gpu(_adamw_rows, device)

    def begin_update(self, learning_rate: float) -> None:
        """Start an update of all weights, with new rounding noise."""
        self.updates += 1
        beta1, beta2, made = self.spec.beta1, self.spec.beta2, self.updates
        self._largest = largest_update(beta1, beta2, made)
        clamp = self._largest if self.formats.clamped else math.inf
        hyper = (learning_rate, 1 - beta1**made, 1 - beta2**made, clamp)
        for place, number in zip(self._hyper.unbind(), hyper, strict=True):
            place.fill_(number)  # unlike a copy from the host, it does not synchronize

    def update_all(self, codes: Tensor, scale: Tensor, amax: Tensor, observe: bool) -> UpdateCounts:
        """Update all weights; arguments as in ``update``."""
        rows, slot_indices = slice(0, len(codes)), slice(0, len(scale))
        return self.update(rows, slot_indices, self._all_segments, codes, scale, amax, observe)

    def update(
        self,
        rows: slice,
        slot_indices: slice,
        segments: Segments,
        codes: Tensor,
        scale: Tensor,
        amax: Tensor,
        observe: bool,
    ) -> UpdateCounts:
        """Update the weights of ``slot_indices``, which are in ``rows``; call ``begin_update`` first.

        Args:
            segments: the slot of each row.
            codes: (rows, 128) E4M3 gradients.
            scale: (P,) their scales, clipping included.
            amax: (P,) of the gradients, clipping included.
            observe: whether to count lost updates; costs a pass.
        """
        new_scales = self._new_scales(amax[slot_indices], slot_indices)
        counts = torch.zeros(2, dtype=torch.int64, device=codes.device)
        found = torch.zeros(3, rows.stop - rows.start, device=codes.device)
        for first in range(0, rows.stop - rows.start, self._chunk_rows):
            inside = slice(first, min(first + self._chunk_rows, rows.stop - rows.start))
            chunk = slice(rows.start + inside.start, rows.start + inside.stop)
            row_slots = segments.tensor_of_row[inside] + slot_indices.start
            self._update_rows(
                self.master.rows_of(chunk, row_slots, slot_indices.start, new_scales[0]),
                self.first.rows_of(chunk, row_slots, slot_indices.start, new_scales[1]),
                self.second.rows_of(chunk, row_slots, slot_indices.start, new_scales[2]),
                codes[inside],
                scale[row_slots][:, None],
                self._learning_rate_factor[row_slots][:, None],
                self._decay[row_slots][:, None],
                self._elements(chunk, row_slots),
                self._stride(row_slots),
                (self._keys[row_slots] ^ step_key(self.updates))[:, None],
                self._hyper,
                found[:, inside],
                counts,
                self.formats,
                self.spec.beta1,
                self.spec.beta2,
                self.spec.epsilon,
                observe,
            )
        for kind, of_rows, new in zip((self.master, self.first, self.second), found, new_scales, strict=True):
            kind.amax[slot_indices] = segments.max(of_rows)
            if kind.format.scaled is ScaleGranularity.TENSOR:
                kind.scale[slot_indices] = new
        return UpdateCounts(*counts)

    def _new_scales(self, gradient_amax: Tensor, slot_indices: slice) -> tuple[Tensor, Tensor, Tensor]:
        """New scales of masters, first and second moments, from bounds on their next values."""
        spec = self.spec
        g = gradient_amax * _ROUNDED_UP
        m = spec.beta1 * self.first.amax[slot_indices] * _ROUNDED_UP + (1 - spec.beta1) * g
        v = spec.beta2 * self.second.amax[slot_indices] * _ROUNDED_UP + (1 - spec.beta2) * g * g
        learning_rates = self._hyper[0] * self._learning_rate_factor[slot_indices]
        w = self.master.amax[slot_indices] * _ROUNDED_UP + learning_rates * self._largest
        return (
            self.master.rescale(w, slot_indices),
            self.first.rescale(m, slot_indices),
            self.second.rescale(v, slot_indices),
        )

    def _elements(self, rows: slice, slot_indices: Tensor) -> Tensor:
        """(rows, 1) int32: index of each row's first element within its weight, or within its slice if that
        has strides.
        """
        row = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=slot_indices.device)
        first = (row - self._first_rows[slot_indices]) * ROW
        if self._element_map.strided:
            return first[:, None]
        return self._element_map.of_whole(first, *self._element_map.stride[:, slot_indices])[:, None]

    def _stride(self, slot_indices: Tensor) -> Tensor | None:
        """(3, rows, 1) int32, if a row's elements are not contiguous in the entire weight."""
        return self._element_map.stride[:, slot_indices][:, :, None] if self._element_map.strided else None


def largest_update(beta1: float, beta2: float, updates: int) -> float:
    """Bound on |m' / c₁| / √(v' / c₂) of exact moments after ``updates``, for any gradients (Cauchy and Schwarz).

    1 after the first update; with β₁ = 0.9 it grows to 1.16 for β₂ = 0.95, and to 7.3 for β₂ = 0.999.
    """
    ratio = beta1 * beta1 / beta2 if beta2 else float(updates > 1)
    terms = updates if ratio == 1 else (1 - min(ratio**updates, 1e12)) / (1 - ratio)
    moments = (1 - beta1) / (1 - beta1**updates) / ((1 - beta2) / (1 - beta2**updates)) ** 0.5
    return float(moments * terms**0.5 * (1 + 1e-6))


class ElementMap(NamedTuple):
    """Maps element indices in slices to those in entire weights."""

    stride: Tensor
    """(3, P) int32: elements in a row of the slice, elements of the entire weight between two of its rows,
    and the offset of the first.
    """

    strided: bool
    """Whether any row of 128 elements is not contiguous in its entire weight."""

    @staticmethod
    def of_whole(elements: Tensor, length: Tensor, gap: Tensor, first: Tensor) -> Tensor:
        return elements + torch.div(elements, length, rounding_mode="floor") * gap + first


def make_element_map(boxes: Sequence[Slice], device: torch.device) -> ElementMap:
    """The map of this rank's slices ``boxes``, in the order of their slots."""
    strides, strided = [], False
    for box in boxes:
        last, whole_last = box.shape[-1], box.full_shape[-1]
        assert len(box.shape) <= 2 or box.shape[1:] == box.full_shape[1:], (
            "sharded along the first or the last of two dims"
        )
        if box.shape[1:] == box.full_shape[1:]:
            following = torch.Size(box.full_shape[1:]).numel()
            strides.append((ROW, 0, _wrapped(box.offset[0] * following)))
        else:
            strides.append((last, whole_last - last, _wrapped(box.offset[0] * whole_last + box.offset[1])))
            strided = strided or last % ROW != 0
    return ElementMap(torch.tensor(strides, dtype=torch.int32, device=device).T.contiguous(), strided)


def _wrapped(number: int) -> int:
    """``number`` modulo 2^32 as an int32, for large tensors."""
    return (number + 2**31) % 2**32 - 2**31


def _adamw_rows(
    master: StateRows,
    first: StateRows,
    second: StateRows,
    gradient_codes: Tensor,
    gradient_scale: Tensor,
    learning_rate_factor: Tensor,
    decay: Tensor,
    elements: Tensor,
    stride: Tensor | None,
    keys: Tensor,
    hyper: Tensor,
    found: Tensor,
    counts: Tensor,
    formats: StateFormats,
    beta1: float,
    beta2: float,
    epsilon: float,
    observe: bool,
) -> None:
    """AdamW on a chunk of rows, in place. ``found`` (3, rows) gets each row's amax of masters and of both
    moments.
    """
    learning_rate, correction1, correction2, largest = hyper
    g = _dequantize(gradient_codes, gradient_scale)
    m = torch.lerp(g, _dequantize(first.codes, first.scale), beta1)
    v = torch.lerp(g * g, _dequantize(second.codes, second.scale), beta2)
    before = _dequantize(master.codes, master.scale)
    update = (m / correction1) / ((v / correction2).sqrt() + epsilon)
    update = torch.maximum(torch.minimum(update, largest), -largest)
    w = before - learning_rate * learning_rate_factor * (update + decay * before)
    lanes = torch.arange(ROW, dtype=torch.int32, device=g.device)
    numbers = elements + lanes
    if stride is not None:
        numbers = ElementMap.of_whole(numbers, *stride)
    noise = uniform_noise(numbers, keys) if formats.stochastic else (None, None, None)
    _store(w, master, formats.master, noise[0], found[0])
    _store(m, first, formats.first, noise[1], found[1])
    _store(v, second, formats.second, noise[2], found[2], never_zero=True)
    if observe:
        stayed = _dequantize(master.codes, master.new_scale) == before
        counts[0] += ((w != before) & stayed).sum()
        counts[1] += (w != before).sum()


def requantize(numbers: Tensor, format: StorageFormat, never_zero: bool) -> tuple[Tensor, Tensor]:
    """Codes (rows, 128) and scales (rows,) of values (rows, 128), rounded to nearest; the values come from other rows.

    Args:
        never_zero: whether a value above zero must not become zero.
    """
    scale = scale_for(finite_or_inf(numbers.abs().amax(1)), format.dtype)
    return round_to_format(numbers / scale[:, None], format, None, never_zero), scale


def _dequantize(codes: Tensor, scale: Tensor) -> Tensor:
    """The real values of codes, float32."""
    return widen(codes, torch.float32) * scale


def _store(
    number: Tensor,
    part: StateRows,
    format: StorageFormat,
    noise: Tensor | None,
    found: Tensor,
    never_zero: bool = False,
) -> None:
    """Round values to their storage format, and write them with their scale and the amax of each row."""
    amax = finite_or_inf(number.abs().amax(1))
    found.copy_(amax)
    scale = part.new_scale
    if format.scaled is ScaleGranularity.ROW:
        scale = scale_for(amax, format.dtype)[:, None]
        part.new_scale.copy_(scale)
    part.codes.copy_(round_to_format(number / scale, format, noise, never_zero))


def round_to_format(scaled: Tensor, format: StorageFormat, noise: Tensor | None, never_zero: bool) -> Tensor:
    """Codes of values that are already divided by their scale."""
    if format.dtype is torch.float32:
        return scaled
    if never_zero and format.scaled is not ScaleGranularity.NOTHING:
        scaled = torch.where(scaled > 0, scaled.clamp(min=SMALLEST[format.dtype]), scaled)
    return cast(scaled, format.dtype) if noise is None else stochastic_round(noise, scaled, format.dtype)
