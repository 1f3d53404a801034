"""Activation checkpointing: activations that the backward pass needs are recomputed instead of saved.

    full       only each block's input is saved           about a third more arithmetic (Chen et al. 2016)
    selective  results of matmuls and attention too       norms, rotations and activations are cheap to recompute,
                                                          and many (Korthikanti et al. 2022)

A pass over the built model: each block gets a class whose forward runs the original inside a checkpoint. So
modules and parameters keep their names, and blocks stay blocks. It comes before compilation, which includes
the checkpoint in its graph, and may come before or after a block's layers are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.model.transformer import Block, Transformer

_KEPT = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::_scaled_mm",
    "trainwright::multiply_blocks",
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_fused_attention_overrideable",
)
"""Operators whose results ``selective`` saves. Not every torch release has all of them."""


def recompute(model: Transformer, spec: MemorySpec) -> None:
    """Make the chosen blocks of ``model`` recompute. Results are bitwise the same."""
    for layer, block in model.layers.items():
        assert type(block) is Block
        if spec.recomputes(int(layer)):
            block.__class__ = _CLASSES[spec.recompute]


class _FullBlock(Block):
    def forward(self, x_BTD: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
        return _again(super().forward, x_BTD, cosines_TK, sines_TK)


class _SelectiveBlock(Block):
    def forward(self, x_BTD: Tensor, cosines_TK: Tensor, sines_TK: Tensor) -> Tensor:
        return _again(super().forward, x_BTD, cosines_TK, sines_TK, context_fn=_contexts)


_CLASSES = {
    RecomputeKind.NONE: Block,
    RecomputeKind.SELECTIVE: _SelectiveBlock,
    RecomputeKind.FULL: _FullBlock,
}


def _again(forward: Callable[..., Tensor], *inputs: Tensor, **how: Any) -> Tensor:
    # No layer draws random numbers, so generator states need not be saved, which would wait for the device.
    out: Tensor = checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **how)
    return out


def _contexts() -> tuple[Any, Any]:
    """Called when a checkpoint starts: by then the layers' own operators have been registered."""
    contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(list(_kept()))
    return contexts


def _kept() -> Iterator[Any]:
    for name in _KEPT:
        space, _, operator = name.partition("::")
        if hasattr(getattr(torch.ops, space), operator):
            yield getattr(getattr(torch.ops, space), operator).default
