"""Cross-entropy of the next token, in nats, computed from the features before the head in chunks of logits.

With a vocabulary of 128,256 the logits of 8,192 tokens take 4.2 GB in float32, and their gradient another 4.2 GB, which
is more than many models. But a token's loss needs only its own logits. So the head processes tokens in chunks, and each
chunk's gradients are computed at once, while its probabilities p exist. The forward pass thus includes the head's
backward pass:

    d loss / d logits = (p - onehot(target)) / N        d/dx = that @ W        d/dW = Σ over chunks of thatᵀ @ x

Two options change the loss. With a soft cap c, a logit l is used as s = c · tanh(l / c), and its gradient is multiplied by 1 - s²/c².
With z-loss (PaLM, Chowdhery et al. 2022, section 5), training minimizes z · L² besides, L the logarithm of the sum of
exponentials, which multiplies p by 1 + 2·z·L. The loss that is returned does not contain it.

Nothing is computed twice, and the saved tensors have the sizes of x and W. The backward pass only multiplies by the
incoming gradient, a scalar. (Wijmans et al. 2024, "Cut your losses", go further and fuse matmul and softmax.)

    B sequence   T position   D width   V vocabulary   N = B·T tokens   C tokens of a chunk
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionCtx
from torch.nn.functional import cross_entropy, linear, log_softmax

from trainwright_trainer.linear.add_weight_gradient import add_weight_gradient
from trainwright_trainer.linear.dense import input_gradient, matmul_dtype, output
from trainwright_trainer.model.softcap import softcapped


class LossOptions(NamedTuple):
    """What changes the loss."""

    softcap: float | None = None
    """`model.final_logit_softcapping`."""

    z_loss: float = 0.0
    """`optimizer.z_loss`."""


NO_OPTIONS = LossOptions()

ChunkGradient = Callable[..., tuple[Tensor, Tensor]]
"""``chunk_gradient``, or its compiled form."""

HeadLoss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""``head_loss`` with its options bound: features, head weight and targets in, loss out."""


def next_token_loss(logits_BTV: Tensor, targets_BT: Tensor, options: LossOptions = NO_OPTIONS) -> Tensor:
    """Mean over all tokens, a float32 scalar for logits of any dtype."""
    capped_NV = softcapped(logits_BTV.float().flatten(0, 1), options.softcap)
    loss = cross_entropy(capped_NV, targets_BT.flatten())
    if not options.z_loss:
        return loss
    added = options.z_loss * capped_NV.logsumexp(1).square().mean()
    return loss + (added - added.detach())


def chunk_gradient(
    logits_CV: Tensor, targets_C: Tensor, tokens: int, options: LossOptions = NO_OPTIONS
) -> tuple[Tensor, Tensor]:
    """Loss of a chunk and its gradient by the logits, as parts of a mean over ``tokens``.

    Returns:
        The part of the mean, a scalar of at least float32; the gradient (C, V) in the dtype of the logits.
    """
    capped_CV = logits_CV if options.softcap is None else softcapped(widened(logits_CV), options.softcap)
    log_p_CV = log_softmax(capped_CV, dim=-1, dtype=_wide(logits_CV.dtype))
    loss = -log_p_CV.gather(1, targets_C[:, None]).sum() / tokens
    is_target_CV = targets_C[:, None] == torch.arange(logits_CV.shape[1], device=logits_CV.device)
    log_sum_C = capped_CV[:, 0] - log_p_CV[:, 0] if options.z_loss else None
    gradient_CV = with_z_loss(log_p_CV.exp_(), log_sum_C, options.z_loss)
    gradient_CV = gradient_CV.add_(is_target_CV, alpha=-1).div_(tokens)
    return loss, through_softcap(gradient_CV, capped_CV, options.softcap).to(logits_CV.dtype)


def with_z_loss(p_CV: Tensor, log_sum_C: Tensor | None, z_loss: float) -> Tensor:
    """Probabilities, multiplied in place by what z-loss adds to the gradient of the logarithm of their sum."""
    return p_CV if log_sum_C is None or not z_loss else p_CV.mul_(1 + 2 * z_loss * log_sum_C[:, None])


def through_softcap(gradient_CV: Tensor, capped_CV: Tensor, softcap: float | None) -> Tensor:
    """The gradient by logits, in place, from that by ``capped_CV``."""
    return gradient_CV if softcap is None else gradient_CV.mul_(1 - (capped_CV / softcap).square())


def head_loss(
    features_BTD: Tensor,
    head_weight_VD: Tensor,
    targets_BT: Tensor,
    chunk_tokens: int,
    gradient_of: ChunkGradient = chunk_gradient,
    always_at_once: bool = False,
    options: LossOptions = NO_OPTIONS,
) -> Tensor:
    """Mean loss of the next token, with logits of at most ``chunk_tokens`` tokens in memory.

    Matmuls use autocast's dtype if it is on, otherwise that of the features; the weight's gradient is summed
    over the chunks in float32. If all tokens fit into one chunk, this is plain cross-entropy, bit for bit, unless
    ``always_at_once``.

    Args:
        features_BTD: normed output of the last block.
        head_weight_VD: any dtype, and any result of autograd, such as the tied embedding.
        targets_BT: ids of the next tokens.
        chunk_tokens: bound on the tokens of a chunk; chunks are as equal as possible.
        gradient_of: computes a chunk; a compiled ``chunk_gradient`` fuses its passes over the logits into
            two.
        always_at_once: compute a single chunk's gradients at once too: compiled for a GPU, that is a quarter of the passes
            that plain cross-entropy makes over float32 logits.

    Returns:
        A float32 scalar.
    """
    if targets_BT.numel() <= chunk_tokens and not (always_at_once and torch.is_grad_enabled()):
        return next_token_loss(linear(features_BTD, head_weight_VD), targets_BT, options)
    x_ND, targets_N = features_BTD.flatten(0, 1), targets_BT.flatten()
    if not torch.is_grad_enabled():
        return _loss_only(x_ND, head_weight_VD, targets_N, chunk_tokens, options.softcap)
    gradient = partial(gradient_of, options=options) if options != NO_OPTIONS else gradient_of
    return loss_by_chunks(x_ND, head_weight_VD, targets_N, chunk_tokens, gradient)


def loss_by_chunks(
    x_ND: Tensor, head_weight_VD: Tensor, targets_N: Tensor, chunk_tokens: int, gradient_of: ChunkGradient
) -> Tensor:
    """``head_loss`` that always computes its gradients at once, even for a single chunk; tokens are in one
    dim.
    """
    loss: Tensor = LossAndGradients.apply(x_ND, head_weight_VD, targets_N, chunk_tokens, gradient_of)
    return loss


def chunks_of(chunk_tokens: int, *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Split each tensor in the same way along its first dim, into as many chunks as ``chunk_tokens`` requires."""
    count = -(-tensors[0].shape[0] // chunk_tokens)
    return [tensor.tensor_split(count) for tensor in tensors]


def widened(logits: Tensor) -> Tensor:
    """``logits`` in at least float32."""
    return logits.to(_wide(logits.dtype))


def _loss_only(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, chunk_tokens: int, softcap: float | None
) -> Tensor:
    losses = [
        cross_entropy(softcapped(linear(x_CD, weight_VD).float(), softcap), targets_C, reduction="sum")
        for x_CD, targets_C in zip(*chunks_of(chunk_tokens, x_ND, targets_N), strict=True)
    ]
    return torch.stack(losses).sum() / targets_N.numel()


class LossAndGradients(Function):
    """A loss whose forward pass computes its gradients too."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        chunk_tokens: int,
        gradient_of: ChunkGradient,
    ) -> Tensor:
        dtype, device = matmul_dtype(x_ND), x_ND.device.type
        # The loop names every dtype itself; autocast would cast the weight again for each chunk.
        with torch.autocast(device, enabled=False):
            loss, x_gradient_ND, weight_gradient_VD = _learn_by_chunks(
                x_ND.to(dtype), weight_VD.to(dtype), targets_N, chunk_tokens, gradient_of
            )
        ctx.dtypes = x_ND.dtype, weight_VD.dtype  # type: ignore[attr-defined]
        ctx.save_for_backward(x_gradient_ND, weight_gradient_VD)
        return loss

    @staticmethod
    def backward(ctx: FunctionCtx, loss_gradient: Tensor) -> tuple[Tensor | None, ...]:
        # In place: the saved tensors have no other use, and a second backward pass raises an error.
        x_gradient_ND, weight_gradient_VD = (
            gradient.mul_(loss_gradient).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)  # type: ignore[attr-defined]
        )
        return x_gradient_ND, weight_gradient_VD, None, None, None


def _learn_by_chunks(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, chunk_tokens: int, gradient_of: ChunkGradient
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, its gradient by ``x_ND`` in the dtype of ``x_ND``, and by ``weight_VD`` in float32."""
    loss = torch.zeros((), device=x_ND.device)
    x_gradient_ND = torch.empty_like(x_ND)
    weight_gradient_VD = torch.zeros_like(weight_VD, dtype=_wide(weight_VD.dtype))
    chunks = chunks_of(chunk_tokens, x_ND, targets_N, x_gradient_ND)
    for x_CD, targets_C, x_gradient_CD in zip(*chunks, strict=True):
        part, gradient_CV = gradient_of(output(x_CD, weight_VD), targets_C, targets_N.numel())
        loss += part
        input_gradient(gradient_CV, weight_VD, out=x_gradient_CD)
        if gradient_CV.dtype == weight_gradient_VD.dtype:
            weight_gradient_VD.addmm_(gradient_CV.t(), x_CD)
        else:
            add_weight_gradient(weight_gradient_VD, gradient_CV, x_CD)
    return loss, x_gradient_ND, weight_gradient_VD


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
