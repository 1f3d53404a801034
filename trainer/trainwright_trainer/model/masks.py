"""Masks: which tokens a token attends to, and attention under a mask.

    causal    itself and those before it
    window    of these, itself and the w - 1 just before it (Beltagy et al. 2020; Mistral, Jiang et al. 2023)

Causal attention has separate kernels. For narrower masks, ``DenseMasks`` are the reference: they add a number to the
score of each pair of positions, -inf if the query does not attend to the key. ``flex_attention`` computes the same on a
GPU without storing these numbers, and without the products that the mask excludes.

    B sequence   T position   H query heads   G key heads   K features of a head
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

Index = TypeVar("Index", Tensor, Any)


def sees(query: Index, key: Index, window: int) -> Index:
    """Whether position ``query`` attends to position ``key``, if a token attends to ``window`` tokens."""
    visible: Index = (key <= query) & (query - key < window)
    return visible


class Masks(Protocol):
    """A way to compute attention under masks."""

    def window(self, positions: int, window: int, dtype: torch.dtype, device: torch.device) -> Any:
        """The mask of sequences with ``positions`` tokens, for tensors of ``dtype``."""

    def attend(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, mask: Any) -> Tensor:
        """(B, H, T, K): attention under a mask that ``window`` returned."""


class DenseMasks:
    """The reference: masks are tensors (T, T)."""

    def __init__(self) -> None:
        self._known: tuple[object, Tensor] | None = None

    def window(self, positions: int, window: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Computed once for all layers and steps, since the backward pass of each layer needs it."""
        which = (positions, window, dtype, device)
        if self._known is None or self._known[0] != which:
            places_T = torch.arange(positions, device=device)
            visible_TT = sees(places_T[:, None], places_T, window)
            scores_TT = torch.zeros(positions, positions, dtype=dtype, device=device)
            self._known = which, scores_TT.masked_fill_(~visible_TT, -torch.inf)
        return self._known[1]

    def attend(self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, mask: Tensor) -> Tensor:
        grouped = q_BHTK.shape[1] > k_BGTK.shape[1]
        mixed_BHTK: Tensor = scaled_dot_product_attention(
            q_BHTK, k_BGTK, v_BGTK, attn_mask=mask, enable_gqa=grouped
        )
        return mixed_BHTK
