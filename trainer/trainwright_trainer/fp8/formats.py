"""Number formats of 8 and 16 bits: their largest values, rounding into them, and the scales that make tensors fit.

A stored tensor is a pair of ``codes`` and ``scale``; the number that it stands for is ``codes · scale``. (The paper
writes x = x' / s; our ``scale`` is its 1 / s.) Scales are powers of two, so that scaling itself never rounds:

    scale = 2^-floor(log2(largest code / amax))          FP8-LM (arXiv 2310.18313), section 2

Every value is clamped before it is cast: what a cast does above the largest code differs between releases of torch
(saturation, NaN or infinity), and overflow is seen in ``amax``, never in the result of a cast.

Nothing here knows what the numbers are for.
"""

from __future__ import annotations

import torch
from torch import Tensor

E4M3 = torch.float8_e4m3fn
"""Four bits of exponent, three of mantissa: inputs, weights, stored gradients, first moments."""

E5M2 = torch.float8_e5m2
"""Two bits of mantissa and a wider range: gradients of outputs."""

LARGEST: dict[torch.dtype, float] = {E4M3: 448.0, E5M2: 57_344.0, torch.float16: 65_504.0}
"""Largest finite value of each format that is scaled. Others (float32, bfloat16) never are."""

SMALLEST: dict[torch.dtype, float] = {E4M3: 2.0**-9, E5M2: 2.0**-16, torch.float16: 2.0**-24}
"""Smallest value above zero (a subnormal one)."""

_E4M3_IN_BFLOAT16 = 0x87F0 - 2**16
"""Where sign, exponent and mantissa of an E4M3 number stand when its code, sign extended, is moved up by four bits."""

_SMALLEST_EXPONENT, _LARGEST_EXPONENT = -100, 100
"""Of a scale: it and its inverse stay finite, whatever amax is."""


def scale_for(amax: Tensor, dtype: torch.dtype, previous: Tensor | None = None) -> Tensor:
    """The scale with which values up to ``amax`` fill the range of ``dtype``.

    Args:
        amax: largest absolute values, float32, any shape.
        dtype: a key of ``LARGEST``.
        previous: scales that stay in force where ``amax`` is zero or not finite; 1 when not given.

    Returns:
        Powers of two, float32, of the shape of ``amax``.
    """
    usable = (amax > 0) & torch.isfinite(amax)
    room = LARGEST[dtype] / torch.where(usable, amax, 1.0).clamp(min=2.0**-120)
    # The exponent stands in the bits of a float32: floor(log2(x)) without a logarithm that rounds.
    exponent = ((room.view(torch.int32) >> 23) - 127).clamp(_SMALLEST_EXPONENT, _LARGEST_EXPONENT)
    scale = ((127 - exponent) << 23).view(torch.float32)
    return torch.where(usable, scale, 1.0 if previous is None else previous)


def cast(scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """Round values that are already divided by their scale to ``dtype``, ties to even, clamped to its range."""
    largest = LARGEST[dtype]
    return scaled.clamp(-largest, largest).to(dtype)


def cast_(scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """``cast`` of a tensor that nobody else reads: it is clamped in place, one allocation less where not compiled."""
    largest = LARGEST[dtype]
    return scaled.clamp_(-largest, largest).to(dtype)


def widen(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers that codes stand for, in bfloat16 or float32; both hold those of FP8 exactly.

    torch's own conversion is slow on CPUs: there E4M3's bits are moved to where bfloat16 has its sign, exponent and
    mantissa, and a factor of 2^120 sets the exponents' bias right, subnormal numbers included. The two codes for NaN
    become ±480 there, since telling them apart would take longer than all the rest: whoever casts what may hold NaN
    sees it in the amax, as ``fp8.products`` does.
    """
    if codes.device.type != "cpu" or codes.dtype is not E4M3:
        return codes.to(dtype)
    bits = codes.view(torch.int8).to(torch.int16).bitwise_left_shift_(4).bitwise_and_(_E4M3_IN_BFLOAT16)
    return bits.view(torch.bfloat16).mul_(2.0**120).to(dtype)


def amax_of(tensor: Tensor) -> Tensor:
    """Largest absolute value, a float32 scalar; infinite if any value is not finite, so that a maximum keeps it."""
    smallest, largest = torch.aminmax(tensor)  # reads the tensor once, and writes nothing in between
    return finite_or_inf(torch.maximum(-smallest, largest).float())


def finite_or_inf(amax: Tensor) -> Tensor:
    """NaN becomes infinity: reductions by maximum may lose the one and never the other."""
    return torch.where(torch.isnan(amax), torch.inf, amax)
