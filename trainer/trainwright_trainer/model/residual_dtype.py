"""The number format of the residual stream, the one tensor that passes through all blocks.

Autocast casts the inputs of matmuls and nothing else: an embedding looked up in float32 weights is float32, and so is
every sum that blocks add to it, though they add bfloat16. Between two matmuls the stream is most of the data that is
read, written and saved for the backward pass. Half of that memory and traffic is for digits that the next matmul drops.
FP8 runs and most published bfloat16 trainings have the stream in bfloat16. Weights, their gradients and the optimizer
stay in float32, norms compute in float32 inside, and rounding a sum of about 2·layers terms adds as much error as each
of the terms already has.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from trainwright_trainer.model.transformer import Transformer


def set_residual_dtype(model: Transformer, dtype: torch.dtype) -> None:
    """Start the residual stream of ``model`` in ``dtype``, which it then keeps. For models under autocast to
    ``dtype``.
    """

    def cast(_: nn.Module, __: tuple[Tensor, ...], x_BTD: Tensor) -> Tensor:
        return x_BTD.to(dtype)

    # Norms then multiply bfloat16 by float32 weights, and torch warns once that this has no fused
    # kernel. Compilation creates one.
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
    if hasattr(model, "embedding"):  # a later stage of a pipeline receives the stream
        model.embedding.register_forward_hook(cast)
    if model.position_embedding is not None:
        model.position_embedding.register_forward_hook(cast)
