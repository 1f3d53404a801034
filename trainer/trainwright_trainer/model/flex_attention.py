"""Attention under masks by FlexAttention (Dong et al. 2024, arXiv 2412.05496), which needs a GPU to train.

A mask is a function of two positions that is compiled into the kernel. It skips tiles of scores that no query of the tile sees,
so a window of w tokens costs matmuls with about w + 128 keys, and no number per pair of positions is stored.

This is a pass over the built model: it replaces how attention and masks are computed, and the model's code does not
change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from trainwright_trainer.model.attention import Attention
from trainwright_trainer.model.masks import RecentMasks, Visible, sees
from trainwright_trainer.model.softcap import softcapped
from trainwright_trainer.model.transformer import Transformer

NAME = "FlexAttention"


class FlexMasks:
    """Masks are functions, with the tiles of scores that remain under them."""

    def __init__(self) -> None:
        self._known = RecentMasks[BlockMask]()

    def build(self, positions: int, visible: Visible, dtype: torch.dtype, device: torch.device) -> BlockMask:
        if visible.starts is not None:
            return _document_mask(positions, visible.window, visible.starts)

        def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return sees(query, key, visible.window)

        which = (positions, visible.window, device)
        return self._known.get(which, lambda: _block_mask(seen, None, positions, device))

    def attend(
        self, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, mask: BlockMask, softcap: float | None = None
    ) -> Tensor:
        grouped = q_BHTK.shape[1] > k_BGTK.shape[1]
        compute = _kernel() if q_BHTK.is_cuda and not torch.compiler.is_compiling() else flex_attention
        mixed_BHTK: Tensor = compute(
            q_BHTK, k_BGTK, v_BGTK, score_mod=_cap_of(softcap), block_mask=mask, enable_gqa=grouped
        )
        return mixed_BHTK


def _cap_of(softcap: float | None) -> Callable[..., Tensor] | None:
    """What the kernel does with each score."""
    if softcap is None:
        return None

    def capped(score: Tensor, batch: Any, head: Any, query: Any, key: Any) -> Tensor:
        return softcapped(score, softcap)

    return capped


def use_flex_attention(model: Transformer) -> None:
    """Let the layers of ``model`` that have a mask compute by FlexAttention."""
    model.masks = FlexMasks()
    for module in model.modules():
        if isinstance(module, Attention):
            module.masks = model.masks


def _document_mask(positions: int, window: int | None, starts_BT: Tensor) -> BlockMask:
    """The mask of one micro batch."""

    def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return sees(query, key, window, starts_BT[batch, query])

    return _block_mask(seen, len(starts_BT), positions, starts_BT.device)


def _block_mask(
    seen: Callable[..., Any], sequences: int | None, positions: int, device: torch.device
) -> BlockMask:
    """The tiles of scores that remain under a mask. On a GPU compiled code computes them, so no number per pair of positions is
    stored: these would be 8.6 GB of indices for 32,768 tokens.
    """
    create = _compiled_block_mask() if device.type == "cuda" else create_block_mask
    mask: BlockMask = create(seen, sequences, None, positions, positions, device=str(device))
    return mask


@cache
def _compiled_block_mask() -> Any:
    return torch.compile(create_block_mask)


@cache
def _kernel() -> Any:
    """FlexAttention, compiled, for blocks that are not compiled: uncompiled it would compute all scores."""
    return torch.compile(flex_attention, dynamic=False)
