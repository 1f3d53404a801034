"""Number formats of 8 and 16 bits: their largest values, rounding to them, and the scales that make tensors fit.

A stored tensor is a pair of ``codes`` and ``scale``; its real value is ``codes · scale``. (The paper
writes x = x' / s; our ``scale`` is its 1 / s.) Scales are powers of two, so scaling itself never rounds:

    scale = 2^-floor(log2(largest code / amax))          FP8-LM (arXiv 2310.18313), section 2

Every value is clamped before it is cast: above the largest code, the result of a cast differs between torch
releases (saturation, NaN or infinity), and overflow is detected from ``amax``, never from the result of a
cast.

Nothing here depends on what the numbers are used for.
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
"""The bits where an E4M3 number has its sign, exponent and mantissa once its code is sign-extended and
shifted by four."""

_MIN_EXPONENT, _MAX_EXPONENT = -100, 100
"""Range of a scale's exponent: the scale and its inverse stay finite for any amax."""


def scale_for(amax: Tensor, dtype: torch.dtype, previous: Tensor | None = None) -> Tensor:
    """The scale with which values up to ``amax`` fill the range of ``dtype``.

    Args:
        amax: largest absolute values, float32, any shape.
        dtype: a key of ``LARGEST``.
        previous: scales to keep where ``amax`` is zero or not finite; 1 by default.

    Returns:
        Powers of two, float32, of the shape of ``amax``.
    """
    usable = (amax > 0) & torch.isfinite(amax)
    room = LARGEST[dtype] / torch.where(usable, amax, 1.0).clamp(min=2.0**-120)
    # A float32's bits contain its exponent: floor(log2(x)) without a logarithm that rounds.
    exponent = ((room.view(torch.int32) >> 23) - 127).clamp(_MIN_EXPONENT, _MAX_EXPONENT)
    scale = ((127 - exponent) << 23).view(torch.float32)
    return torch.where(usable, scale, 1.0 if previous is None else previous)


def cast(scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """Round values that are already divided by their scale to ``dtype``, ties to even, clamped to its range."""
    largest = LARGEST[dtype]
    return scaled.clamp(-largest, largest).to(dtype)


def cast_(scaled: Tensor, dtype: torch.dtype) -> Tensor:
    """``cast`` of a tensor with no other reader: it is clamped in place, which saves an allocation if not
    compiled.
    """
    largest = LARGEST[dtype]
    return scaled.clamp_(-largest, largest).to(dtype)


def widen(codes: Tensor, dtype: torch.dtype) -> Tensor:
    """The values of ``codes`` in bfloat16 or float32, which both represent FP8 exactly.

    torch's own conversion is slow on CPUs: there E4M3's bits are shifted to where bfloat16 has its sign,
    exponent and mantissa, and a factor of 2^120 corrects the exponents' bias, subnormal numbers included. The
    two codes for NaN become ±480, since telling them apart would take longer than all the rest: code that
    casts values that may be NaN sees it in the amax, as ``fp8.compute.casting`` does.
    """
    if codes.device.type != "cpu" or codes.dtype is not E4M3:
        return codes.to(dtype)
    bits = codes.view(torch.int8).to(torch.int16).bitwise_left_shift_(4).bitwise_and_(_E4M3_IN_BFLOAT16)
    return bits.view(torch.bfloat16).mul_(2.0**120).to(dtype)


def amax_of(tensor: Tensor) -> Tensor:
    """Largest absolute value, a float32 scalar; infinite if any value is not finite, so that a maximum keeps
    it.

    In compiled code the maximum of each row is taken first. The compiler puts it into the kernel that computes the rows, such
    as a norm's. A maximum over the entire tensor would read the tensor again.
    """
    if torch.compiler.is_compiling() and tensor.ndim > 1:
        return finite_or_inf(tensor.abs().amax(-1).amax().float())
    smallest, largest = torch.aminmax(tensor)  # reads the tensor once, without temporaries
    return finite_or_inf(torch.maximum(-smallest, largest).float())


def finite_or_inf(amax: Tensor) -> Tensor:
    """Replace NaN by infinity: reductions by maximum may lose NaN but never infinity."""
    return torch.where(torch.isnan(amax), torch.inf, amax)
