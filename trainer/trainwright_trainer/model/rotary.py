"""Rotary positions (Su et al. 2021): a position rotates pairs of features by angles proportional to it.

Of a head's features, the first R are rotated (all of them, unless `model.partial_rotary_factor` is less than 1). Feature i is
paired with feature i + R/2 (Hugging Face's half-split order), not with its neighbour as in the paper; the two differ by a
fixed permutation of the query and key rows, and with this one an export only renames tensors.

A scaling lowers frequencies, so that a model reads longer sequences than it was first trained with:

    llama3  frequencies of long wavelengths are divided by a factor, those of short ones are left (Llama 3.1, arXiv 2407.21783)
    yarn    the same by the number of rotations within the original length, and the tables are multiplied by a number that
            sharpens attention (Peng et al. 2023, arXiv 2309.00071)

    T position   K features of a head   R rotated features of a head
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trainwright.contracts.rope_scaling import RopeScalingSpec


def rotary_table(
    positions: int, features: int, theta: float, scaling: RopeScalingSpec | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (T, R) float32, the second half of the features a copy of the first."""
    # The reciprocal, as in Hugging Face's code: theta ** -x differs in the last bit, which large
    # positions multiply.
    frequencies = 1.0 / theta ** (torch.arange(0, features, 2, dtype=torch.float32) / features)
    if scaling is not None:
        frequencies = _SCALINGS[scaling.rope_type](frequencies, theta, scaling)
    angles_TR = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies).repeat(1, 2)
    if scaling is None or scaling.rope_type != "yarn":
        return angles_TR.cos(), angles_TR.sin()
    factor = scaling.resolved("attention_factor")
    return angles_TR.cos() * factor, angles_TR.sin() * factor


def rotate(x_BHTK: Tensor, cosines_TR: Tensor, sines_TR: Tensor) -> Tensor:
    """Rotate the first R features of each head by their position; float32 inside, the dtype of ``x_BHTK`` out."""
    rotated = cosines_TR.shape[-1]
    if rotated < x_BHTK.shape[-1]:
        head, rest = x_BHTK[..., :rotated], x_BHTK[..., rotated:]
        return torch.cat((rotate(head, cosines_TR, sines_TR), rest), dim=-1)
    first, second = x_BHTK.float().chunk(2, dim=-1)
    crossed = torch.cat((-second, first), dim=-1)
    return (x_BHTK.float() * cosines_TR + crossed * sines_TR).type_as(x_BHTK)


def _llama3(frequencies: Tensor, theta: float, scaling: RopeScalingSpec) -> Tensor:
    length = scaling.original_max_position_embeddings
    low, high = scaling.resolved("low_freq_factor"), scaling.resolved("high_freq_factor")
    wavelengths = 2 * math.pi / frequencies
    smooth = (length / wavelengths - low) / (high - low)
    between = (1 - smooth) * frequencies / scaling.factor + smooth * frequencies
    is_long, is_short = wavelengths > length / low, wavelengths < length / high
    return between.where(~is_short, frequencies).where(~is_long, frequencies / scaling.factor)


def _yarn(frequencies: Tensor, theta: float, scaling: RopeScalingSpec) -> Tensor:
    features, length = 2 * len(frequencies), scaling.original_max_position_embeddings

    def feature_with(rotations: float) -> float:
        """The pair of features that makes this many rotations within the original length."""
        return features * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(feature_with(scaling.resolved("beta_fast"))), 0)
    last = min(math.ceil(feature_with(scaling.resolved("beta_slow"))), features - 1)
    width = last - first or 0.001
    ramp = ((torch.arange(features // 2, dtype=torch.float32) - first) / width).clamp(0, 1)
    kept = 1 - ramp
    scaled = 1.0 / (scaling.factor * theta ** (torch.arange(0, features, 2, dtype=torch.float32) / features))
    return scaled * (1 - kept) + frequencies * kept


_SCALINGS = {"llama3": _llama3, "yarn": _yarn}
