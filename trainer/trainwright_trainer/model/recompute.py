"""Activation checkpointing: activations that the backward pass needs are recomputed instead of saved.

    full       only each block's input is saved           about a third more arithmetic (Chen et al. 2016)
    selective  results of matmuls and attention too       norms, rotations and activations are cheap to recompute,
                                                          and many (Korthikanti et al. 2022)

A pass over the built model: a chosen block is replaced by one that runs the same forward inside a checkpoint.
It comes before compilation, which includes the checkpoint in its graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from trainwright.contracts.training_spec import MemorySpec, RecomputeKind
from trainwright_trainer.model.attention import AttentionTables
from trainwright_trainer.model.attention_registry import ATTENTION_MODULES
from trainwright_trainer.model.transformer import Block, Transformer
from trainwright_trainer.runtime.module_replacement import replace_modules

_KEPT = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::_scaled_mm",
    "trainwright::multiply_blocks",
)
"""Operators whose results ``selective`` saves, besides those of attention. Not every torch release has all of them."""


def recompute(model: Transformer, spec: MemorySpec) -> None:
    """Make the chosen blocks of ``model`` recompute. Results are bitwise the same."""
    if spec.recompute is RecomputeKind.NONE:
        return
    make = partial(RecomputedBlock, selective=spec.recompute is RecomputeKind.SELECTIVE)
    replace_modules(model.layers, {Block: make}, lambda layer: spec.recomputes(int(layer)))


class RecomputedBlock(Block):
    """A block that recomputes its activations in the backward pass."""

    def __init__(self, block: Block, selective: bool) -> None:
        nn.Module.__init__(self)
        self.attention_norm, self.attention = block.attention_norm, block.attention
        self.feed_forward_norm, self.feed_forward = block.feed_forward_norm, block.feed_forward
        self._how: dict[str, Any] = {"context_fn": _contexts} if selective else {}

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        # No layer draws random numbers, so generator states need not be saved, which would wait for the device.
        out_BTD: Tensor = checkpoint(
            super().forward,
            x_BTD,
            tables,
            use_reentrant=False,
            preserve_rng_state=False,
            **self._how,
        )
        return out_BTD


def _contexts() -> tuple[Any, Any]:
    """Called when a checkpoint starts: by then the layers' own operators have been registered."""
    contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(list(_kept()))
    return contexts


def _kept() -> Iterator[Any]:
    of_attention = {name for module in ATTENTION_MODULES.values() for name in module.costly_operators}
    for name in (*_KEPT, *sorted(of_attention)):
        space, _, operator = name.partition("::")
        if hasattr(getattr(torch.ops, space), operator):
            yield getattr(getattr(torch.ops, space), operator).default
    yield torch.ops.higher_order.flex_attention
