"""Stochastic rounding with noise that is a function of the seed, the step, the weight and the element.

Moving averages and small updates must not be rounded to nearest. An update of 1e-5 on a weight of 0.05 is less than
half of float16's spacing there, so it would always be lost. A moment in E4M3, whose spacing is 6 to 12 %, stops
changing when one step of its average is smaller than half of that: with β₂ = 0.95 a second moment would never fall
again. If a number is rounded up with a probability equal to its fraction of the spacing, it is exact on average, and
averages stay correct.

The random bits are a hash of (seed, step, weight, element), and not those of a generator. So there is no state, and a
resumed run rounds in the same way, also with other shards per rank. One hash gives the noise for a weight's three
numbers. Arithmetic is in int32, which wraps; everything is element-wise, so a compiler fuses it into the update.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from trainwright_trainer.fp8.compute.formats import E4M3, cast

_HASH_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - 2**32)
"""Multipliers of a 32-bit finalizer with low bias (Wellons 2018)."""

_SPREAD = 0x9E3779B1 - 2**32
_BITS = (13, 9, 9)
"""Random bits for master, first and second moment. A float32 has 13 more mantissa bits than a float16: with
13 random bits the rounding of masters is exactly unbiased. Nine leave a bias of at most 2^-10 of the spacing."""

_MANTISSA_BITS = {torch.float16: 10, E4M3: 3}
_LOWEST_EXPONENT = {torch.float16: -14, E4M3: -6}
"""Exponent of the smallest normal number: below it the spacing stays the same."""


def weight_key(name: str, seed: int) -> int:
    """Hash key of weight ``name``, as an int32."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(digest[:4], "big", signed=True)


def step_key(step: int) -> int:
    """Hash key of ``step``, as an int32."""
    return int.from_bytes(hashlib.sha256(str(step).encode()).digest()[:4], "big", signed=True)


def uniform_noise(elements: Tensor, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Uniform numbers in [0, 1), float32, for the master, the first and the second moment of each element.

    Args:
        elements: index of each element within its weight, int32.
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


def stochastic_round(noise: Tensor, scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """Round to one of the two nearest values of ``dtype``, with probabilities that make the result exact on average.

    Args:
        noise: uniform in [0, 1), of the shape of ``scaled``.
        scaled: float32; values beyond the range are clamped.
        dtype: float16 or E4M3.
    """
    mantissa = _MANTISSA_BITS[dtype]
    exponent = ((scaled.view(torch.int32) >> 23) & 0xFF).clamp(min=127 + _LOWEST_EXPONENT[dtype])
    spacing = ((exponent - mantissa) << 23).view(torch.float32)
    per_spacing = ((254 + mantissa - exponent) << 23).view(torch.float32)
    return cast(torch.floor(scaled * per_spacing + noise) * spacing, dtype)
