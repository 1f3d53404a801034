"""AdamW whose state takes 6 bytes a parameter (FP8-LM, section 3.2), made for all weights by a few fused calls.

    master weight     float16 with a scale a tensor     2 bytes
    gradient          E4M3 with a scale a tensor        1 byte       kept by ``fp8.gradients``
    first moment      E4M3 with a scale a tensor        1 byte
    second moment     float16 with a scale a tensor     2 bytes

Each number is read, moved and computed with in float32, and stored with a new scale, rounded by dice (``rounding``):

    m' = β₁ m + (1 - β₁) g        v' = β₂ v + (1 - β₂) g²        w' = (1 - η λ) w - η (m' / c₁) / (√(v' / c₂) + ε)

A new scale must be known before the first value is stored, and amax after the last one was computed. Rather than
computing everything twice, the scale is taken from a bound on the new amax: |m'| ≤ β₁ amax(m) + (1 - β₁) amax(g), and
alike for v and w. Floating-point codes lose no mantissa to a bound that is too large by less than two, only the last
of 18 (E4M3) or 40 (float16) powers of two of range.

What does not work, and is a test that must fail: masters in E4M3, float16 v without a scale, v in E4M3 with one scale a
tensor. With a scale for each 128 elements E4M3 holds v too, if a v that is not zero never becomes zero: a weight whose
v were lost, while its m is not, would be thrown by m / ε.

    R rows held here   P weights
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.run_spec import FP8Level, FP8Spec, MomentsKind, OptimizerSpec
from trainwright_trainer.fp8.formats import E4M3, SMALLEST, cast, finite_or_inf, scale_for, widen
from trainwright_trainer.fp8.fused import fused
from trainwright_trainer.fp8.layout import ROW, Layout, segment_max
from trainwright_trainer.fp8.rounding import dice, round_by, step_key, weight_key

_CHUNK_ROWS = {"cpu": 2**11, "cuda": 2**20}
"""Rows worked on at a time: on a CPU what its cache holds, on a GPU what 32-bit indices reach."""

_ROUNDED_UP = 1 + 2.0**-4
"""E4M3 rounds a number up by at most this factor."""

_LARGEST_UPDATE = 4.0
"""Bound on |m' / c₁| / √(v' / c₂), which is about 1 in theory, times what the rounding of both moments can add."""


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

    def row_scales(self, rows: slice, places: Tensor, of_tensors: Tensor | None = None) -> Tensor:
        """(rows, 1): the scale of each row, from ``of_tensors`` (P,) where tensors have scales and these are given."""
        if self.format.scaled is Scaled.ROW:
            return self.scale[rows][:, None]
        return (self.scale if of_tensors is None else of_tensors)[places][:, None]

    def rescale(self, bound: Tensor) -> Tensor:
        """(P,): scales for numbers up to ``bound``, to store the next ones with."""
        if self.format.scaled is not Scaled.TENSOR:
            return self.scale
        return scale_for(bound, self.format.dtype, self.scale)


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
        self._row_places = layout.row_places().to(device)
        self._offsets = layout.held_offsets().to(device)
        first = layout.first_rows()
        self._first_rows = torch.tensor(
            [first.get(tenant.name, 0) for tenant in layout.tenants], dtype=torch.int32, device=device
        )
        self._keys = torch.tensor(
            [weight_key(tenant.name, seed) for tenant in layout.tenants], dtype=torch.int32, device=device
        )
        self._decay = torch.tensor(
            [spec.weight_decay if len(tenant.shape) > 1 else 0.0 for tenant in layout.tenants], device=device
        )
        self._chunk_rows = _CHUNK_ROWS[device.type]
        self._move = fused(_move_rows, device)

    def update(
        self,
        rows: slice,
        places: slice,
        codes: Tensor,
        scale: Tensor,
        amax: Tensor,
        learning_rate: float,
        observe: bool,
    ) -> Moved:
        """Move the weights of ``places``, which lie in ``rows``; ``begin_update`` comes first.

        Args:
            codes: (rows, 128) E4M3 gradients.
            scale: (P,) what they are multiplied with, clipping included.
            amax: (P,) of the gradients, clipping included.
            observe: whether to count what was lost; costs a pass.
        """
        new_scales = self._bounds(amax, learning_rate)
        hyper = self._hyper(learning_rate)
        counts = torch.zeros(2, dtype=torch.int64, device=codes.device)
        found = torch.zeros(3, rows.stop - rows.start, device=codes.device)
        for first in range(rows.start, rows.stop, self._chunk_rows):
            chunk = slice(first, min(first + self._chunk_rows, rows.stop))
            inside = slice(chunk.start - rows.start, chunk.stop - rows.start)
            self._move_chunk(
                chunk, codes[inside], scale, new_scales, hyper, found[:, inside], counts, observe
            )
        self._take(places, found, self._offsets[places.start : places.stop + 1] - rows.start, new_scales)
        return Moved(*counts)

    def begin_update(self) -> None:
        """An update of all weights begins: the dice are thrown anew."""
        self.updates += 1

    def _hyper(self, learning_rate: float) -> Tensor:
        """Numbers that change with each update, as a tensor, so that compiled code stays the same."""
        spec, made = self.spec, self.updates
        return torch.tensor(
            [learning_rate, 1 - spec.beta1**made, 1 - spec.beta2**made], device=self._decay.device
        )

    def _bounds(self, gradient: Tensor, learning_rate: float) -> tuple[Tensor, Tensor, Tensor]:
        """New scales of masters, first and second moments."""
        spec = self.spec
        g = gradient * _ROUNDED_UP
        m = spec.beta1 * self.first.amax * _ROUNDED_UP + (1 - spec.beta1) * g
        v = spec.beta2 * self.second.amax * _ROUNDED_UP + (1 - spec.beta2) * g * g
        w = self.master.amax * _ROUNDED_UP + _LARGEST_UPDATE * learning_rate
        return self.master.rescale(w), self.first.rescale(m), self.second.rescale(v)

    def _move_chunk(
        self,
        rows: slice,
        codes: Tensor,
        scale: Tensor,
        new_scales: tuple[Tensor, Tensor, Tensor],
        hyper: Tensor,
        found: Tensor,
        counts: Tensor,
        observe: bool,
    ) -> None:
        places = self._row_places[rows]
        w, m, v = self.master, self.first, self.second
        new_w, new_m, new_v = new_scales
        self._move(
            (w.codes[rows], m.codes[rows], v.codes[rows]),
            (w.row_scales(rows, places), m.row_scales(rows, places), v.row_scales(rows, places)),
            (
                w.row_scales(rows, places, new_w),
                m.row_scales(rows, places, new_m),
                v.row_scales(rows, places, new_v),
            ),
            codes,
            scale[places][:, None],
            self._decay[places][:, None],
            self._elements(rows, places),
            (self._keys[places] ^ step_key(self.updates))[:, None],
            hyper,
            found,
            counts,
            self.formats,
            self.spec.beta1,
            self.spec.beta2,
            self.spec.epsilon,
            observe,
        )

    def _elements(self, rows: slice, places: Tensor) -> Tensor:
        """(rows, 1) int32: number of each row's first element within its weight."""
        row = torch.arange(rows.start, rows.stop, dtype=torch.int32, device=places.device)
        return ((row - self._first_rows[places]) * ROW)[:, None]

    def _take(
        self, places: slice, found: Tensor, offsets: Tensor, new_scales: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        """Keep the scales that numbers were stored with, and their amaxes."""
        for kind, rows, scale in zip((self.master, self.first, self.second), found, new_scales, strict=True):
            if kind.format.scaled is Scaled.TENSOR:
                kind.scale[places] = scale[places]
            kind.amax[places] = segment_max(rows, offsets)


def _move_rows(
    codes: tuple[Tensor, Tensor, Tensor],
    scales: tuple[Tensor, Tensor, Tensor],
    new_scales: tuple[Tensor, Tensor, Tensor],
    gradient_codes: Tensor,
    gradient_scale: Tensor,
    decay: Tensor,
    elements: Tensor,
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
    """AdamW on a chunk of rows, in place. ``new_scales`` are read where a tensor has one, and written where a row has.

    ``found`` (3, rows) gets the amax of each row of masters, first and second moments.
    """
    learning_rate, correction1, correction2 = hyper
    g = _real(gradient_codes, gradient_scale)
    m = torch.lerp(g, _real(codes[1], scales[1]), beta1)
    v = torch.lerp(g * g, _real(codes[2], scales[2]), beta2)
    held = _real(codes[0], scales[0])
    update = (m / correction1) / ((v / correction2).sqrt() + epsilon)
    w = held - learning_rate * (update + decay * held)
    lanes = torch.arange(ROW, dtype=torch.int32, device=g.device)
    thrown = dice(elements + lanes, keys) if formats.stochastic else (None, None, None)
    for kind, number, format in ((1, m, formats.first), (2, v, formats.second), (0, w, formats.master)):
        found[kind] = finite_or_inf(number.abs().amax(1))
        if format.scaled is Scaled.ROW:
            new_scales[kind].copy_(scale_for(found[kind], format.dtype)[:, None])
        stored = _store(number / new_scales[kind], format, kind == 2, thrown[kind])
        if kind == 0 and observe:
            stayed = _real(stored, new_scales[0]) == held
            counts[0] += ((w != held) & stayed).sum()
            counts[1] += (w != held).sum()
        codes[kind].copy_(stored)


def _real(codes: Tensor, scale: Tensor) -> Tensor:
    """The numbers that codes stand for, float32."""
    return widen(codes, torch.float32) * scale


def _store(scaled: Tensor, format: Format, is_second_moment: bool, thrown: Tensor | None) -> Tensor:
    """Round numbers, already divided by their scale, to the format they are kept in."""
    if format.dtype is torch.float32:
        return scaled
    if is_second_moment and format.scaled is not Scaled.NOTHING:
        scaled = torch.where(scaled > 0, scaled.clamp(min=SMALLEST[format.dtype]), scaled)
    return cast(scaled, format.dtype) if thrown is None else round_by(thrown, scaled, format.dtype)
