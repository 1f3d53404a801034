"""Blocks whose attention and feed-forward network multiply their input with several matrices at once.

This is a pass over the built model, for layers that keep casts of their weights (``linear.weight_casts``). The results are
the same, except for the rounding of the input's gradient: sums over several matrices stay in float32.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import silu

from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.linear.shared_input import multiply_at_once
from trainwright_trainer.model.attention import Attention, AttentionTables
from trainwright_trainer.model.attention_registry import ATTENTION_MODULES
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.runtime.module_replacement import Replacements, recreate, replace_modules


class JointProducts(nn.Module):
    """Mixin of a module that multiplies its input with several matrices at once."""

    joint_cast: Tensor | None = None
    """(N, K): the casts of the weights of ``joint_layers``, stacked by rows; None if none are kept."""

    joint_names: tuple[str, ...]

    @property
    def joint_layers(self) -> list[DenseLinear]:
        layers = [getattr(self, name) for name in self.joint_names]
        return [layer for layer in layers if isinstance(layer, DenseLinear)]


class _JointAttention(JointProducts, Attention):
    joint_names = ("query", "key", "value")

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        q_BTF, k_BTF, v_BTF = multiply_at_once(x_BTD, self)
        mixed_BTD: Tensor = self.output(self.mix(q_BTF, k_BTF, v_BTF, tables))
        return mixed_BTD


class _JointFeedForward(JointProducts, FeedForward):
    joint_names = ("gate", "up")

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate_BTF, up_BTF = multiply_at_once(x_BTD, self)
        out_BTD: Tensor = self.down(silu(gate_BTF) * up_BTF)
        return out_BTD


def join_products(blocks: Iterable[nn.Module]) -> None:
    """Let ``blocks`` multiply an input of several layers at once. Their linear layers are ``DenseLinear``."""
    replacements: Replacements = {FeedForward: partial(recreate, into=_JointFeedForward)}
    for variant in ATTENTION_MODULES.values():
        replacements = {**replacements, variant: _replacement(variant)}
    for block in blocks:
        replace_modules(block, replacements)


def _replacement(variant: type[Attention]) -> partial[nn.Module]:
    """How to replace a variant. One that does more with its input than project it stays as it is."""
    if variant.forward is not Attention.forward:
        return partial(_unchanged)
    return partial(recreate, into=type(f"JointOf{variant.__name__}", (_JointAttention, variant), {}))


def _unchanged(module: nn.Module) -> nn.Module:
    return module
