"""Stochastic rounding whose dice are a function: of the seed, the step, the weight and the element.

Moving averages and small updates cannot be rounded to nearest. An update of 1e-5 on a weight of 0.05 is less than half
of float16's spacing there, so it would be lost every time. A moment in E4M3, whose spacing is 6 to 12 %, stops where
one step of its average moves it by less than half of that: with β₂ = 0.95 a second moment would never fall again.
Rounded up with a probability that is its share of the spacing, a number is right on average, and averages stay true.

The random bits are a hash of (seed, step, weight, element) and not a generator's: no state is kept, a resumed run
throws the same dice, and so does one whose weights lie on other ranks. One hash gives the dice of a weight's three
numbers. Arithmetic is in int32, which wraps; everything is element-wise, so that a compiler fuses it into the update.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from trainwright_trainer.fp8.formats import E4M3, cast

_HASH_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - 2**32)
"""Of a 32-bit finaliser with low bias (Wellons 2018)."""

_SPREAD = 0x9E3779B1 - 2**32
_BITS = (13, 9, 9)
"""Bits of the dice for master, first and second moment. A float32 has 13 bits of mantissa more than a float16: dice of
as many make the rounding of masters exactly unbiased. Nine leave a bias of at most 2^-10 of the spacing."""

_MANTISSA_BITS = {torch.float16: 10, E4M3: 3}
_LOWEST_EXPONENT = {torch.float16: -14, E4M3: -6}
"""Exponent of the smallest normal number: below it the spacing stays the same."""


def weight_key(name: str, seed: int) -> int:
    """A number for the dice of weight ``name``, as an int32."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:4], "big", signed=True)


def step_key(step: int) -> int:
    """A number for the dice of ``step``, as an int32."""
    return int.from_bytes(hashlib.sha256(str(step).encode()).digest()[:4], "big", signed=True)


def dice(elements: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uniform numbers in [0, 1), float32, for the master, the first and the second moment of each element.

    Args:
        elements: number of each element within its weight, int32.
        keys: combined keys of weight and step, int32, broadcast against ``elements``.
    """
    h = (elements * _SPREAD) ^ keys
    h = (h ^ ((h >> 16) & 0xFFFF)) * _HASH_MULTIPLIERS[0]
    h = (h ^ ((h >> 15) & 0x1FFFF)) * _HASH_MULTIPLIERS[1]
    h = h ^ ((h >> 16) & 0xFFFF)
    of_master, of_first, of_second = _BITS
    return (
        _uniform(h >> (32 - of_master), of_master),
        _uniform(h >> of_second, of_first) + 2.0 ** -(of_first + 1),
        _uniform(h, of_second) + 2.0 ** -(of_second + 1),
    )


def _uniform(bits: Tensor, count: int) -> Tensor:
    lowest: Tensor = (bits & (2**count - 1)).float()
    return lowest * 2.0**-count


def round_by(dice: Tensor, scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to one of the two nearest values of ``dtype``, the further one as often as ``scaled`` is close to it.

    Args:
        dice: uniform in [0, 1), of the shape of ``scaled``.
        scaled: float32; values beyond the range are clamped.
        dtype: float16 or E4M3.
    """
    mantissa = _MANTISSA_BITS[dtype]
    exponent = ((scaled.view(torch.int32) >> 23) & 0xFF).clamp(min=127 + _LOWEST_EXPONENT[dtype])
    spacing = ((exponent - mantissa) << 23).view(torch.float32)
    per_spacing = ((254 + mantissa - exponent) << 23).view(torch.float32)
    return cast(torch.floor(scaled * per_spacing + dice) * spacing, dtype)
