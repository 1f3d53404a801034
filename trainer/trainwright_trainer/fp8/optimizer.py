"""AdamW whose state takes 6 bytes a parameter (FP8-LM, section 3.2), made for all weights by a few fused calls.

    master weight     float16 with a scale a tensor     2 bytes
    gradient          E4M3 with a scale a tensor        1 byte       kept by ``fp8.gradients``
    first moment      E4M3 with a scale a tensor        1 byte
    second moment     float16 with a scale a tensor     2 bytes

Each number is read, moved and computed with in float32, and stored with a new scale, rounded by dice (``rounding``):

    m' = β₁ m + (1 - β₁) g        v' = β₂ v + (1 - β₂) g²        w' = (1 - η λ) w - η (m' / c₁) / (√(v' / c₂) + ε)

A new scale must be known before the first value is stored, and amax after the last one was computed. Rather than
computing everything twice, the scale is taken from a bound on the new amax: |m'| ≤ β₁ amax(m) + (1 - β₁) amax(g), and
alike for v; a weight moves by at most the learning rate times ``largest_update``. Codes are floating-point numbers: a
bound that is too large by less than two costs the last of 18 (E4M3) or 40 (float16) powers of two of range, and no
mantissa.

Exact moments keep that bound by themselves. Rounded ones might not: an m near the smallest code is thrown to it or to
zero, while its v is stored well. So an update is clamped to what exact moments could make of it, and no weight is ever
thrown by its rounding.

What does not work, and is a test that must fail: masters in E4M3, float16 v without a scale, v in E4M3 with one scale a
tensor. With a scale for each 128 elements E4M3 holds v too, if a v that is not zero never becomes zero: a weight whose
v were lost, while its m is not, would be thrown by m / ε.

Dice belong to elements of the whole weight, so that a rank that holds a slice throws those that a rank with all of it would.

    R rows held here   P weights
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.precision_spec import FP8Level, FP8Spec, MomentsKind
from trainwright.contracts.training_spec import OptimizerSpec
from trainwright_trainer.fp8.formats import E4M3, SMALLEST, cast, finite_or_inf, scale_for, widen
from trainwright_trainer.fp8.fused import fused
from trainwright_trainer.fp8.layout import ROW, Layout
from trainwright_trainer.fp8.rounding import dice, round_by, step_key, weight_key
from trainwright_trainer.fp8.stretches import Stretches
from trainwright_trainer.parts import Slice

_CHUNK_ROWS = {"cpu": 2**11, "cuda": 2**20}
"""Rows worked on at a time: on a CPU what its cache holds, on a GPU what 32-bit indices reach."""

_ROUNDED_UP = 1 + 2.0**-3
"""Dice round a number up to E4M3 by less than this factor, and to float16 by far less."""


class Scaled(Enum):
    """What shares one scale."""

    NOTHING = "nothing"
    TENSOR = "tensor"
    ROW = "row"


class Format(NamedTuple):
    """How one kind of number is kept."""

    dtype: torch.dtype
    scaled: Scaled


class Formats(NamedTuple):
    """How everything is kept."""

    master: Format
    first: Format
    second: Format
    stochastic: bool = True
    """Whether numbers are rounded by dice and not to nearest."""

    clamped: bool = True
    """Whether an update is clamped to what exact moments could make of it."""


FLOAT32 = Format(torch.float32, Scaled.NOTHING)
PAPER = Formats(
    master=Format(torch.float16, Scaled.TENSOR),
    first=Format(E4M3, Scaled.TENSOR),
    second=Format(torch.float16, Scaled.TENSOR),
)
BLOCK = PAPER._replace(first=Format(E4M3, Scaled.ROW), second=Format(E4M3, Scaled.ROW))


def formats_of(spec: FP8Spec) -> Formats:
    if spec.level is FP8Level.O1:
        return Formats(FLOAT32, FLOAT32, FLOAT32)
    return BLOCK if spec.moments is MomentsKind.BLOCK else PAPER


class Numbers:
    """One kind of number of all held weights."""

    def __init__(self, format: Format, rows: int, places: int, device: torch.device) -> None:
        self.format = format
        self.codes = torch.zeros(rows, ROW, dtype=format.dtype, device=device)
        self.scale = torch.ones(
            rows if format.scaled is Scaled.ROW else places, dtype=torch.float32, device=device
        )
        """(R,) or (P,): what codes are multiplied with."""
        self.amax = torch.zeros(places, dtype=torch.float32, device=device)
        """(P,): of the numbers before they were rounded."""

    def part(self, rows: slice, places: Tensor, first_place: int, new_scale: Tensor) -> NumberRows:
        """Some rows, which belong to ``places``; ``new_scale`` are those of the tensors from ``first_place`` on."""
        if self.format.scaled is Scaled.ROW:
            scale = self.scale[rows][:, None]
            # The old scales are a copy: compiled code must not write what it reads through another name.
            return NumberRows(self.codes[rows], scale.clone(), scale)
        return NumberRows(
            self.codes[rows], self.scale[places][:, None], new_scale[places - first_place][:, None]
        )

    def rescale(self, bound: Tensor, places: slice) -> Tensor:
        """Scales for numbers up to ``bound``, to store the next ones of ``places`` with."""
        if self.format.scaled is not Scaled.TENSOR:
            return torch.ones_like(bound)
        return scale_for(bound, self.format.dtype, self.scale[places])


class NumberRows(NamedTuple):
    """Some rows of one kind of number."""

    codes: Tensor
    """(rows, 128): read, and then written."""

    scale: Tensor
    """(rows, 1): what the codes that are read are multiplied with."""

    new_scale: Tensor
    """(rows, 1): what written codes will be multiplied with; itself written where each row has a scale."""


class Moved(NamedTuple):
    """What an update found out."""

    lost: Tensor
    """() int64: weights that should have moved and did not."""

    meant: Tensor
    """() int64: weights that should have moved."""


class ScaledAdamW:
    """AdamW over the rows that this rank holds."""

    def __init__(
        self, layout: Layout, formats: Formats, spec: OptimizerSpec, seed: int, device: torch.device
    ) -> None:
        self.spec = spec
        self.formats = formats
        self.updates = 0
        """Updates made so far; skipped steps are none."""
        rows, places = layout.held_rows, len(layout.tenants)
        self.master = Numbers(formats.master, rows, places, device)
        self.first = Numbers(formats.first, rows, places, device)
        self.second = Numbers(formats.second, rows, places, device)
        self._everything = layout.held_stretches(device)
        first = layout.first_rows()
        self._first_rows = torch.tensor(
            [first.get(tenant.name, 0) for tenant in layout.tenants], dtype=torch.int32, device=device
        )
        self._numbering = _numbering([tenant.box for tenant in layout.tenants], device)
        self._keys = torch.tensor(
            [weight_key(tenant.name, seed) for tenant in layout.tenants], dtype=torch.int32, device=device
        )
        self._decay = torch.tensor(
            [spec.weight_decay if len(tenant.shape) > 1 else 0.0 for tenant in layout.tenants], device=device
        )
        self._largest = 1.0
        self._hyper = torch.zeros(4, device=device)
        """Learning rate, corrections of both moments, clamp of updates: a tensor, so that compiled code stays the same."""
        self._chunk_rows = _CHUNK_ROWS[device.type]
        self._move = fused(_move_rows, device)

    def begin_update(self, learning_rate: float) -> None:
        """An update of all weights begins: the dice are thrown anew."""
        self.updates += 1
        beta1, beta2, made = self.spec.beta1, self.spec.beta2, self.updates
        self._largest = largest_update(beta1, beta2, made)
        clamp = self._largest if self.formats.clamped else math.inf
        hyper = (learning_rate, 1 - beta1**made, 1 - beta2**made, clamp)
        for place, number in zip(self._hyper.unbind(), hyper, strict=True):
            place.fill_(number)  # unlike a copy from the host, it makes nobody wait

    def update_all(self, codes: Tensor, scale: Tensor, amax: Tensor, observe: bool) -> Moved:
        """Move all weights; arguments as in ``update``."""
        rows, places = slice(0, len(codes)), slice(0, len(scale))
        return self.update(rows, places, self._everything, codes, scale, amax, observe)

    def update(
        self,
        rows: slice,
        places: slice,
        stretches: Stretches,
        codes: Tensor,
        scale: Tensor,
        amax: Tensor,
        observe: bool,
    ) -> Moved:
        """Move the weights of ``places``, which lie in ``rows``; ``begin_update`` comes first.

        Args:
            stretches: which of ``places`` each of the rows belongs to.
            codes: (rows, 128) E4M3 gradients.
            scale: (P,) what they are multiplied with, clipping included.
            amax: (P,) of the gradients, clipping included.
            observe: whether to count what was lost; costs a pass.
        """
        new_scales = self._new_scales(amax[places], places)
        counts = torch.zeros(2, dtype=torch.int64, device=codes.device)
        found = torch.zeros(3, rows.stop - rows.start, device=codes.device)
        for first in range(0, rows.stop - rows.start, self._chunk_rows):
            inside = slice(first, min(first + self._chunk_rows, rows.stop - rows.start))
            chunk = slice(rows.start + inside.start, rows.start + inside.stop)
            row_places = stretches.tensor_of_row[inside] + places.start
            self._move(
                self.master.part(chunk, row_places, places.start, new_scales[0]),
                self.first.part(chunk, row_places, places.start, new_scales[1]),
                self.second.part(chunk, row_places, places.start, new_scales[2]),
                codes[inside],
                scale[row_places][:, None],
                self._decay[row_places][:, None],
                self._elements(chunk, row_places),
                self._stride(row_places),
                (self._keys[row_places] ^ step_key(self.updates))[:, None],
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
            kind.amax[places] = stretches.max(of_rows)
            if kind.format.scaled is Scaled.TENSOR:
                kind.scale[places] = new
        return Moved(*counts)

    def _new_scales(self, gradient_amax: Tensor, places: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Of masters, first and second moments: from bounds on what they are about to become."""
        spec = self.spec
        g = gradient_amax * _ROUNDED_UP
        m = spec.beta1 * self.first.amax[places] * _ROUNDED_UP + (1 - spec.beta1) * g
        v = spec.beta2 * self.second.amax[places] * _ROUNDED_UP + (1 - spec.beta2) * g * g
        w = self.master.amax[places] * _ROUNDED_UP + self._hyper[0] * self._largest
        return self.master.rescale(w, places), self.first.rescale(m, places), self.second.rescale(v, places)

    def _elements(self, rows: slice, places: Tensor) -> Tensor:
        """(rows, 1) int32: number of each row's first element within its weight; within its slice if that has strides."""
        row = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=places.device)
        first = (row - self._first_rows[places]) * ROW
        if self._numbering.strided:
            return first[:, None]
        return self._numbering.of_whole(first, *self._numbering.stride[:, places])[:, None]

    def _stride(self, places: Tensor) -> Tensor | None:
        """(3, rows, 1) int32, where a row's elements do not follow each other in the whole weight."""
        return self._numbering.stride[:, places][:, :, None] if self._numbering.strided else None


def largest_update(beta1: float, beta2: float, updates: int) -> float:
    """Bound on |m' / c₁| / √(v' / c₂) of exact moments after ``updates``, whatever the gradients (Cauchy and Schwarz).

    1 after the first update; with β₁ = 0.9 it grows to 1.16 for β₂ = 0.95, and to 7.3 for β₂ = 0.999.
    """
    ratio = beta1 * beta1 / beta2 if beta2 else float(updates > 1)
    terms = updates if ratio == 1 else (1 - min(ratio**updates, 1e12)) / (1 - ratio)
    moments = (1 - beta1) / (1 - beta1**updates) / ((1 - beta2) / (1 - beta2**updates)) ** 0.5
    return float(moments * terms**0.5 * (1 + 1e-6))


class _Numbering(NamedTuple):
    """From the numbers that elements have in slices to those they have in whole weights."""

    stride: Tensor
    """(3, P) int32: elements in a row of the slice, elements of the whole weight between two of its rows, and the first."""

    strided: bool
    """Whether any 128 elements that a row of ours holds are not 128 that follow each other in a whole weight."""

    @staticmethod
    def of_whole(elements: Tensor, length: Tensor, gap: Tensor, first: Tensor) -> Tensor:
        return elements + torch.div(elements, length, rounding_mode="floor") * gap + first


def _numbering(boxes: Sequence[Slice], device: torch.device) -> _Numbering:
    strides, strided = [], False
    for box in boxes:
        last, whole_last = box.shape[-1], box.whole[-1]
        assert len(box.shape) <= 2 or box.shape[1:] == box.whole[1:], (
            "cut along the first or the last of two dims"
        )
        if box.shape[1:] == box.whole[1:]:
            following = torch.Size(box.whole[1:]).numel()
            strides.append((ROW, 0, _wrapped(box.start[0] * following)))
        else:
            strides.append((last, whole_last - last, _wrapped(box.start[0] * whole_last + box.start[1])))
            strided = strided or last % ROW != 0
    return _Numbering(torch.tensor(strides, dtype=torch.int32, device=device).T.contiguous(), strided)


def _wrapped(number: int) -> int:
    """As arithmetic in int32 has it, where tensors are so large."""
    return (number + 2**31) % 2**32 - 2**31


def _move_rows(
    master: NumberRows,
    first: NumberRows,
    second: NumberRows,
    gradient_codes: Tensor,
    gradient_scale: Tensor,
    decay: Tensor,
    elements: Tensor,
    stride: Tensor | None,
    keys: Tensor,
    hyper: Tensor,
    found: Tensor,
    counts: Tensor,
    formats: Formats,
    beta1: float,
    beta2: float,
    epsilon: float,
    observe: bool,
) -> None:
    """AdamW on a chunk of rows, in place. ``found`` (3, rows) gets each row's amax of masters and of both moments."""
    learning_rate, correction1, correction2, largest = hyper
    g = _real(gradient_codes, gradient_scale)
    m = torch.lerp(g, _real(first.codes, first.scale), beta1)
    v = torch.lerp(g * g, _real(second.codes, second.scale), beta2)
    held = _real(master.codes, master.scale)
    update = (m / correction1) / ((v / correction2).sqrt() + epsilon)
    update = torch.maximum(torch.minimum(update, largest), -largest)
    w = held - learning_rate * (update + decay * held)
    lanes = torch.arange(ROW, dtype=torch.int32, device=g.device)
    numbers = elements + lanes
    if stride is not None:
        numbers = _Numbering.of_whole(numbers, *stride)
    thrown = dice(numbers, keys) if formats.stochastic else (None, None, None)
    _store(w, master, formats.master, thrown[0], found[0])
    _store(m, first, formats.first, thrown[1], found[1])
    _store(v, second, formats.second, thrown[2], found[2], never_zero=True)
    if observe:
        stayed = _real(master.codes, master.new_scale) == held
        counts[0] += ((w != held) & stayed).sum()
        counts[1] += (w != held).sum()


def round_anew(numbers: Tensor, format: Format, never_zero: bool) -> tuple[Tensor, Tensor]:
    """Codes (rows, 128) and scales (rows,) of numbers (rows, 128), to nearest: numbers that were rounded before, and whose
    rows were others.

    Args:
        never_zero: whether a number above zero must not become zero.
    """
    scale = scale_for(finite_or_inf(numbers.abs().amax(1)), format.dtype)
    return _rounded(numbers / scale[:, None], format, None, never_zero), scale


def _real(codes: Tensor, scale: Tensor) -> Tensor:
    """The numbers that codes stand for, float32."""
    return widen(codes, torch.float32) * scale


def _store(
    number: Tensor,
    part: NumberRows,
    format: Format,
    thrown: Tensor | None,
    found: Tensor,
    never_zero: bool = False,
) -> None:
    """Round numbers to the format they are kept in, and write them with their scale and the amax of each row."""
    amax = finite_or_inf(number.abs().amax(1))
    found.copy_(amax)
    scale = part.new_scale
    if format.scaled is Scaled.ROW:
        scale = scale_for(amax, format.dtype)[:, None]
        part.new_scale.copy_(scale)
    part.codes.copy_(_rounded(number / scale, format, thrown, never_zero))


def _rounded(scaled: Tensor, format: Format, thrown: Tensor | None, never_zero: bool) -> Tensor:
    """Codes of numbers that are divided by their scale."""
    if format.dtype is torch.float32:
        return scaled
    if never_zero and format.scaled is not Scaled.NOTHING:
        scaled = torch.where(scaled > 0, scaled.clamp(min=SMALLEST[format.dtype]), scaled)
    return cast(scaled, format.dtype) if thrown is None else round_by(thrown, scaled, format.dtype)
