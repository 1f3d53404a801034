"""The vocabulary cut over the ranks of the tensor axis: embedding, head and the loss between them.

    owns    rows of the embedding and the head, as equal in number as can be; the logits of those, a chunk of tokens at a time
    moves   forward    embedded tokens, summed and scattered: each comes from the one rank that has its row
                       features before the head, gathered, for every rank needs all tokens
                       per chunk and token two numbers of each rank: log Σ exp of its logits, and the target's logit or 0
            backward   the same tensors the other way

A token's loss needs no more of the other ranks' logits than the logarithm of their summed exponentials: with L the
logarithm of the sum over all ranks, p = exp(logit - L) is known where the logit is. So logits never travel, and every
rank computes the same loss bit for bit. (Shoeybi et al. 2019, section 3; chunks as in ``model.loss``.)

    B sequence   T position   D width   V rows of this rank   N = B·T tokens   C tokens of a chunk   R ranks
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from trainwright_trainer.ends import BadJobError
from trainwright_trainer.fp8.modules import HighEmbedding
from trainwright_trainer.mesh import Axis
from trainwright_trainer.model.loss import chunks_of, loss_by_chunks, widened
from trainwright_trainer.parallel.tensor.tokens import gather, scatter_sum


class Rows(NamedTuple):
    """A stretch of the vocabulary."""

    first: int
    number: int


CutGradient = Callable[[Tensor, Tensor, int, Rows, Axis], tuple[Tensor, Tensor]]
"""Of ``cut_chunk_gradient``, or of a compiled form of it."""


def rows_of(size: int, axis: Axis) -> Rows:
    """This rank's rows of ``size``: the first ranks have one more where they cannot be equal.

    Raises:
        BadJobError: a rank would have none.
    """
    if size < axis.ranks:
        raise BadJobError(
            f"parallelism.tensor: {axis.ranks} ranks cannot share {size} rows: use {size} at most"
        )
    base, more = divmod(size, axis.ranks)
    return Rows(axis.rank * base + min(axis.rank, more), base + (axis.rank < more))


class _CutRows(nn.Module):
    """Looks up the rows that are here; the other ranks add theirs."""

    rows: Rows
    axis: Axis

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """(B, T) → (B, T/t, D)."""
        offsets_BT = tokens_BT - self.rows.first
        is_here_BT = (offsets_BT >= 0) & (offsets_BT < self.rows.number)
        # A token of another rank looks up some row for nothing; by the remainder these spread over all rows, whose
        # gradients would else be added up one after the other in a single one.
        found_BTD: Tensor = super().forward(offsets_BT.remainder(self.rows.number))
        return scatter_sum(found_BTD.masked_fill(~is_here_BT[..., None], 0.0), self.axis)


class _CutEmbedding(_CutRows, nn.Embedding):
    pass


class _CutHighEmbedding(_CutRows, HighEmbedding):
    pass


_CLASSES: dict[type[nn.Module], type[_CutRows]] = {
    nn.Embedding: _CutEmbedding,
    HighEmbedding: _CutHighEmbedding,
}


def share_embedding(embedding: nn.Module, vocabulary: int, axis: Axis) -> None:
    """Let ``embedding``, which holds this rank's rows of ``vocabulary``, give this rank's part of the tokens."""
    embedding.__class__ = _CLASSES[type(embedding)]
    assert isinstance(embedding, _CutRows)
    embedding.rows, embedding.axis = rows_of(vocabulary, axis), axis


def cut_head_loss(
    features_BTD: Tensor,
    head_weight_VD: Tensor,
    targets_BT: Tensor,
    *,
    chunk_tokens: int,
    vocabulary: int,
    axis: Axis,
    gradient_of: CutGradient,
) -> Tensor:
    """``model.loss.head_loss`` of a cut head: the same number, on every rank.

    Args:
        features_BTD: this rank's part of the tokens, (B, T/t, D).
        head_weight_VD: this rank's rows.
        targets_BT: of all tokens.
        vocabulary: rows of all ranks.
    """
    x_ND, targets_N = gather(features_BTD, axis).flatten(0, 1), targets_BT.flatten()
    rows = rows_of(vocabulary, axis)
    if not torch.is_grad_enabled():
        return _loss_only(x_ND, head_weight_VD, targets_N, chunk_tokens, rows, axis)
    gradient = partial(_with, gradient_of, rows, axis)
    return loss_by_chunks(x_ND, head_weight_VD, targets_N, chunk_tokens, gradient)


def cut_chunk_gradient(
    logits_CV: Tensor, targets_C: Tensor, tokens: int, rows: Rows, axis: Axis
) -> tuple[Tensor, Tensor]:
    """``model.loss.chunk_gradient`` of the logits of ``rows``; the loss is that of the whole vocabulary."""
    log_sum_C, target_C = _of_all_ranks(logits_CV, targets_C, rows, axis)
    columns_V = torch.arange(rows.first, rows.first + rows.number, device=logits_CV.device)
    is_target_CV = targets_C[:, None] == columns_V
    p_CV = (logits_CV.to(log_sum_C.dtype) - log_sum_C[:, None]).exp_()
    gradient_CV = p_CV.add_(is_target_CV, alpha=-1).div_(tokens)
    return (log_sum_C - target_C).sum() / tokens, gradient_CV.to(logits_CV.dtype)


def _with(
    gradient_of: CutGradient, rows: Rows, axis: Axis, logits_CV: Tensor, targets_C: Tensor, tokens: int
) -> tuple[Tensor, Tensor]:
    return gradient_of(logits_CV, targets_C, tokens, rows, axis)


def _loss_only(
    x_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, chunk_tokens: int, rows: Rows, axis: Axis
) -> Tensor:
    parts = []
    for x_CD, targets_C in zip(*chunks_of(chunk_tokens, x_ND, targets_N), strict=True):
        log_sum_C, target_C = _of_all_ranks(linear(x_CD, weight_VD), targets_C, rows, axis)
        parts.append((log_sum_C - target_C).sum())
    return torch.stack(parts).sum() / targets_N.numel()


def _of_all_ranks(logits_CV: Tensor, targets_C: Tensor, rows: Rows, axis: Axis) -> tuple[Tensor, Tensor]:
    """(C,) float32 each: logarithm of the summed exponentials of all logits of a token, and its target's logit."""
    wide_CV = widened(logits_CV)
    offsets_C = targets_C - rows.first
    is_here_C = (offsets_C >= 0) & (offsets_C < rows.number)
    found_C = wide_CV.gather(1, offsets_C.remainder(rows.number)[:, None])[:, 0]
    own_2C = torch.stack((wide_CV.logsumexp(1), found_C.where(is_here_C, 0.0)))
    log_sums_RC, targets_RC = axis.gathered(own_2C[None]).unbind(1)
    return log_sums_RC.logsumexp(0), targets_RC.sum(0)
