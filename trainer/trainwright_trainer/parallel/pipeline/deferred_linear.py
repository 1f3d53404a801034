"""The pass that lets the linear layers of blocks defer their weight gradients (``linear.deferred_weight_gradients``).

It neither shards nor sends anything; ``stages`` says what a rank owns.

These are nearly all of a stage's weights. Embedding, norms and head do not change: their gradients are
complete when the backward pass is.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from trainwright_trainer.fp8.compute.linear import FP8Linear
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.runtime.module_replacement import replace_modules


def defer_weight_gradients(model: Transformer, deferred: DeferredWeightGradients) -> None:
    """Let the linear layers of ``model``'s blocks add their weight gradients to ``deferred``."""
    replace_modules(model.layers, {nn.Linear: partial(DenseLinear, deferred=deferred)})
    for module in model.layers.modules():
        if isinstance(module, FP8Linear):
            module.deferred = deferred
