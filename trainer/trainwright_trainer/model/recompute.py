"""Activation checkpointing: activations that the backward pass needs are recomputed instead of saved.

    full       only each block's input is saved           about a third more arithmetic (Chen et al. 2016)
    selective  results of matmuls and attention too       norms, rotations and activations are cheap to recompute,
                                                          and many (Korthikanti et al. 2022)

This is a pass over the built model: it replaces a chosen block by one that runs the same forward pass inside a
checkpoint. It comes before compilation, which includes the checkpoint in its graph.
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
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.runtime.module_replacement import recreate, replace_modules

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
    how: dict[str, Any] = {"context_fn": _contexts} if spec.recompute is RecomputeKind.SELECTIVE else {}
    kinds = dict.fromkeys(map(type, model.layers.values()))
    replace_modules(
        model.layers,
        {kind: partial(_recomputed, into=_recomputing(kind), how=how) for kind in kinds},
        lambda layer: spec.recomputes(int(layer)),
    )


class RecomputedBlock(nn.Module):
    """The base, besides its own class, of a block that recomputes its activations in the backward pass."""

    how: dict[str, Any]
    """Options of the checkpoint."""

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        # No layer draws random numbers, so generator states need not be saved, which would wait for the device.
        out_BTD: Tensor = checkpoint(
            super().forward,
            x_BTD,
            tables,
            use_reentrant=False,
            preserve_rng_state=False,
            **self.how,
        )
        return out_BTD


def _recomputing(kind: type[nn.Module]) -> type[RecomputedBlock]:
    return type(f"Recomputed{kind.__name__}", (RecomputedBlock, kind), {})


def _recomputed(block: nn.Module, into: type[RecomputedBlock], how: dict[str, Any]) -> RecomputedBlock:
    made = recreate(block, into)
    made.how = how
    return made


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
