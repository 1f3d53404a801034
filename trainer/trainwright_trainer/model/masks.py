"""Masks: which tokens a token attends to, and attention under a mask.

    causal      itself and those before it
    window      of these, itself and the w - 1 just before it (Beltagy et al. 2020; Mistral, Jiang et al. 2023)
    documents   of these, those of its document (``documents``)

Causal attention has separate kernels, but not for scores with a soft cap (``softcap``). For these, and for narrower masks, ``DenseMasks`` are the reference: they add a number to the
score of each pair of positions, -inf if the query does not attend to the key. ``flex_attention`` computes the same on a
GPU without storing these numbers, and without the matmuls that the mask excludes.

    B sequence   T position   H query heads   G key heads   K features of a head
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from trainwright_trainer.model.softcap import softcapped

Index = TypeVar("Index", Tensor, Any)
Mask = TypeVar("Mask")

_MAX_MASKS = 4


class Visible(NamedTuple):
    """What narrows causal attention."""

    window: int | None = None
    """Tokens that a token attends to."""

    starts: Tensor | None = None
    """(B, T): where the document of each token starts."""


def sees(query: Index, key: Index, window: int | None, start: Index | None = None) -> Index:
    """Whether position ``query`` attends to position ``key``, if a token attends to ``window`` tokens, and its document starts
    at ``start``.
    """
    visible: Index = key <= query
    if window is not None:
        visible = visible & (query - key < window)
    if start is not None:
        visible = visible & (key >= start)
    return visible


class Masks(Protocol):
    """A way to compute attention under masks."""

    def build(self, positions: int, visible: Visible, dtype: torch.dtype, device: torch.device) -> Any:
        """The mask of sequences with ``positions`` tokens, for tensors of ``dtype``."""

    def attend(
        self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, mask: Any, softcap: float | None = None
    ) -> Tensor:
        """(B, H, T, K): attention under a mask that ``build`` returned, with scores below ``softcap``."""


class RecentMasks(Generic[Mask]):
    """The masks that were used last. A model has up to two at once, one of them with a window, and validation or sampling may
    add some of another length.
    """

    def __init__(self) -> None:
        self._masks: dict[object, Mask] = {}

    def get(self, which: object, build: Callable[[], Mask]) -> Mask:
        """The mask that ``which`` identifies, built if it is not among the last ones."""
        mask = self._masks.pop(which) if which in self._masks else build()
        self._masks[which] = mask
        while len(self._masks) > _MAX_MASKS:
            del self._masks[next(iter(self._masks))]
        return mask


class DenseMasks:
    """The reference: masks are tensors, (T, T), or (B, 1, T, T) with documents."""

    def __init__(self) -> None:
        self._known = RecentMasks[Tensor]()

    def build(self, positions: int, visible: Visible, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Computed once for all layers, since the backward pass of each layer needs it; a window's for all steps."""
        if visible.starts is not None:
            return _scores(positions, visible.window, visible.starts[:, None, :, None], dtype, device)
        which = (positions, visible.window, dtype, device)
        return self._known.get(which, lambda: _scores(positions, visible.window, None, dtype, device))

    def attend(
        self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, mask: Tensor, softcap: float | None = None
    ) -> Tensor:
        if softcap is not None:
            return _capped_attention(q_BHTK, k_BGTK, v_BGTK, mask, softcap)
        grouped = q_BHTK.shape[1] > k_BGTK.shape[1]
        mixed_BHTK: Tensor = scaled_dot_product_attention(
            q_BHTK, k_BGTK, v_BGTK, attn_mask=mask, enable_gqa=grouped
        )
        return mixed_BHTK


def _capped_attention(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, mask: Tensor, softcap: float) -> Tensor:
    """Attention whose scores are stored, in float32: no kernel of SDPA caps them.

    Args:
        mask: numbers to add to scores, or whether a query attends to a key.
    """
    group = q_BHTK.shape[1] // k_BGTK.shape[1]
    k_BHTK, v_BHTK = (each.repeat_interleave(group, 1) for each in (k_BGTK, v_BGTK))
    scores_BHTT = (q_BHTK @ k_BHTK.transpose(-1, -2)).float() * q_BHTK.shape[-1] ** -0.5
    capped_BHTT = softcapped(scores_BHTT, softcap)
    if mask.dtype == torch.bool:
        capped_BHTT = capped_BHTT.masked_fill(~mask, -torch.inf)
    else:
        capped_BHTT = capped_BHTT + mask
    mixed_BHTK: Tensor = capped_BHTT.softmax(-1).to(v_BHTK.dtype) @ v_BHTK
    return mixed_BHTK


def _scores(
    positions: int, window: int | None, starts: Tensor | None, dtype: torch.dtype, device: torch.device
) -> Tensor:
    places_T = torch.arange(positions, device=device)
    visible = sees(places_T[:, None], places_T, window, starts)
    return torch.zeros(visible.shape, dtype=dtype, device=device).masked_fill_(~visible, -torch.inf)
