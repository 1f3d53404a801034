"""Blocks whose attention and feed-forward network multiply their input with several matrices at once.

This is a pass over the built model, for layers that keep casts of their weights (``linear.weight_casts``). The results are
the same, except for the rounding of the input's gradient: sums over several matrices stay in float32.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.linear.fused_linear import multiply_at_once
from trainwright_trainer.model.attention import Attention, AttentionTables, only_projects
from trainwright_trainer.model.attention_registry import ATTENTION_MODULES
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.model.transformer import ParallelBlock
from trainwright_trainer.runtime.module_replacement import Replacements, recreate, replace_modules


class FusedProjections(nn.Module):
    """Mixin of a module that multiplies its input with several matrices at once."""

    fused_cast: Tensor | None = None
    """(N, K): the casts of the weights of ``fused_layers``, stacked by rows; None if none are kept."""

    @property
    @abstractmethod
    def fused_names(self) -> tuple[str, ...]:
        """Names of the layers that read the input."""

    @property
    def fused_layers(self) -> list[DenseLinear]:
        layers = [self.get_submodule(name) for name in self.fused_names]
        return [layer for layer in layers if isinstance(layer, DenseLinear)]


class _FusedAttention(FusedProjections, Attention):
    @property
    def fused_names(self) -> tuple[str, ...]:
        return self.first_names

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        mixed_BTD: Tensor = self.output(self.mix(tables, *multiply_at_once(x_BTD, self)))
        return mixed_BTD


class _FusedFeedForward(FusedProjections, FeedForward):
    @property
    def fused_names(self) -> tuple[str, ...]:
        return self.first_names

    def forward(self, x_BTD: Tensor) -> Tensor:
        out_BTD: Tensor = self.down(self.hidden(*multiply_at_once(x_BTD, self)))
        return out_BTD


class _FusedParallelBlock(FusedProjections, ParallelBlock):
    @property
    def fused_names(self) -> tuple[str, ...]:
        return (
            *(f"attention.{name}" for name in self.attention.first_names),
            *(f"feed_forward.{name}" for name in self.feed_forward.first_names),
        )

    def both(self, normed_BTD: Tensor, tables: AttentionTables) -> Tensor:
        attention, feed_forward = self.attention, self.feed_forward
        projections_BTF = multiply_at_once(normed_BTD, self)
        count = len(attention.first_names)
        attended_BTD: Tensor = attention.output(attention.mix(tables, *projections_BTF[:count]))
        forwarded_BTD: Tensor = feed_forward.down(feed_forward.hidden(*projections_BTF[count:]))
        return attended_BTD + forwarded_BTD


def fuse_projections(blocks: nn.Module, where: Callable[[str], bool] = lambda path: True) -> None:
    """Let the modules in ``blocks``, whose linear layers are ``DenseLinear``, multiply inputs of several layers in one
    matmul.

    Args:
        where: whether to change the module at a path.
    """
    fused = {
        path
        for path, block in blocks.named_modules()
        if type(block) is ParallelBlock and where(path) and only_projects(type(block.attention))
    }
    replace_modules(blocks, {ParallelBlock: partial(recreate, into=_FusedParallelBlock)}, fused.__contains__)
    parts: Replacements = {FeedForward: partial(recreate, into=_FusedFeedForward)}
    for variant in ATTENTION_MODULES.values():
        parts = {**parts, variant: _replacement(variant)}
    replace_modules(blocks, parts, lambda path: where(path) and path.rpartition(".")[0] not in fused)


def _replacement(variant: type[Attention]) -> partial[nn.Module]:
    """How to replace a variant. A variant that does more with its input than project it does not change."""
    if not only_projects(variant):
        return partial(_unchanged)
    return partial(recreate, into=type(f"FusedOf{variant.__name__}", (_FusedAttention, variant), {}))


def _unchanged(module: nn.Module) -> nn.Module:
    return module
