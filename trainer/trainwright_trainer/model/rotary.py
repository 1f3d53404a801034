"""Rotary positions (Su et al. 2021): a position rotates pairs of features by angles proportional to it.

Feature i is paired with feature i + K/2 (Hugging Face's half-split order), not with its neighbour as in the
paper; the two differ by a fixed permutation of the query and key rows, and with this one an export only
renames tensors.

    T position   K features of a head
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_table(positions: int, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (T, K) float32, the second half of the features a copy of the first."""
    # The reciprocal, as in Hugging Face's code: theta ** -x differs in the last bit, which large
    # positions multiply.
    frequencies = 1.0 / theta ** (torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angles_TK = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies).repeat(1, 2)
    return angles_TK.cos(), angles_TK.sin()


def rotate(x_BHTK: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
    """Rotate each head's features by their position; float32 inside, the dtype of ``x_BHTK`` out."""
    first, second = x_BHTK.float().chunk(2, dim=-1)
    crossed = torch.cat((-second, first), dim=-1)
    return (x_BHTK.float() * cosines_TK + crossed * sines_TK).type_as(x_BHTK)
