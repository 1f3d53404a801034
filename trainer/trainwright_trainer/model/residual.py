"""The number format of the residual stream, the one tensor that goes through all blocks.

Autocast casts the inputs of products and leaves the rest alone: an embedding looked up in float32 weights is float32,
and so is every sum that blocks add to it, though what they add is bfloat16. Between two products the stream is most of
what is read, written and kept for the backward pass, so that half of the memory and traffic there carries digits that
the next product drops. In bfloat16 it is what FP8 runs and most published bfloat16 trainings have. Weights, their
gradients and the optimizer stay in float32, norms compute in float32 inside, and rounding a sum of about 2·layers terms
adds to its error what each of the terms has brought already.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from trainwright_trainer.model.transformer import Transformer


def carry_in(model: Transformer, dtype: torch.dtype) -> None:
    """Let the residual stream of ``model`` begin, and so go on, in ``dtype``. For models under autocast to it."""

    def cast(_: nn.Module, __: tuple[Tensor, ...], x_BTD: Tensor) -> Tensor:
        return x_BTD.to(dtype)

    # Norms then multiply bfloat16 by float32 weights, and torch tells once that this has no fused kernel. Compilation
    # makes one.
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
    if hasattr(model, "embedding"):  # a later stage of a pipeline is given a stream that has begun
        model.embedding.register_forward_hook(cast)
