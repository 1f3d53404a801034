"""Stochastic rounding to float16 whose dice are a function: of the seed, the step, the weight and the element.

An update of 1e-5 on a weight of 0.05 is less than half of float16's spacing there, so rounding to nearest would lose it
every time; rounded up with a probability that is its share of the spacing, updates are kept on average. The random
bits are a hash of (seed, step, weight, element) and not a generator's: no state is kept, a resumed run throws the same
dice, and so does one whose weights lie on other ranks.

Arithmetic is in int32, which wraps. Everything is element-wise, so that a compiler fuses it into the update.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

_HASH_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - 2**32)
"""Of a 32-bit finaliser with low bias (Wellons 2018)."""

_SPREAD = 0x9E3779B1 - 2**32
_LOWEST_EXPONENT = 127 - 14
"""Biased exponent of float16's smallest normal number: below it the spacing stays the same."""

_MANTISSA_BITS = 10
_DICE_BITS = 23 - _MANTISSA_BITS
"""A float32 has so many bits of mantissa more than a float16: dice of as many bits make the rounding exactly unbiased."""


def weight_key(name: str, seed: int) -> int:
    """A number for the dice of weight ``name``, as an int32."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:4], "big", signed=True)


def step_key(step: int) -> int:
    """A number for the dice of ``step``, as an int32."""
    return int.from_bytes(hashlib.sha256(str(step).encode()).digest()[:4], "big", signed=True)


def dice(elements: Tensor, keys: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), float32, multiples of 2^-13.

    Args:
        elements: number of each element within its weight, int32.
        keys: combined keys of weight and step, int32, broadcast against ``elements``.
    """
    h = (elements * _SPREAD) ^ keys
    h = (h ^ ((h >> 16) & 0xFFFF)) * _HASH_MULTIPLIERS[0]
    h = (h ^ ((h >> 15) & 0x1FFFF)) * _HASH_MULTIPLIERS[1]
    h = h ^ ((h >> 16) & 0xFFFF)
    thrown: Tensor = ((h >> (32 - _DICE_BITS)) & (2**_DICE_BITS - 1)).float()
    return thrown * 2.0**-_DICE_BITS


def to_float16(scaled: Tensor, dice: Tensor) -> Tensor:
    """Round to one of the two nearest float16 values, the further one as often as ``scaled`` is close to it.

    Args:
        scaled: float32, within float16's range (larger values are clamped).
        dice: uniform in [0, 1), of the same shape.
    """
    exponent = ((scaled.view(torch.int32) >> 23) & 0xFF).clamp(min=_LOWEST_EXPONENT)
    spacing = ((exponent - _MANTISSA_BITS) << 23).view(torch.float32)
    per_spacing = ((254 + _MANTISSA_BITS - exponent) << 23).view(torch.float32)
    rounded = torch.floor(scaled * per_spacing + dice) * spacing
    return rounded.clamp(-65_504.0, 65_504.0).half()
