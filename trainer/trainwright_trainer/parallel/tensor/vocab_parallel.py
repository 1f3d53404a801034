"""Vocabulary parallelism: embedding, head and loss, with the vocabulary sharded over the tensor axis.

    owns    rows of the embedding and the head, as equal as possible; their logits, one chunk of tokens at a time
    moves   forward    embedded tokens, reduce-scattered: each comes from the one rank that has its row
                       features before the head, all-gathered, since every rank needs all tokens
                       two numbers per rank, chunk and token: log Σ exp of its logits, and the target's logit or 0
            backward   the same tensors in the opposite direction

A token's loss needs only the logarithm of the summed exponentials of the other ranks' logits. With L the logarithm of
the sum over all ranks, each rank computes p = exp(logit - L) for its own logits. So logits are never sent, and every
rank computes the same loss bit for bit. (Shoeybi et al. 2019, section 3; chunks as in ``model.loss``.)

    B sequence   T position   D width   V rows of this rank   N = B·T tokens   C tokens of a chunk   R ranks
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.fp8.compute.bf16_layers import BF16Embedding
from trainwright_trainer.model.loss import (
    NO_OPTIONS,
    LossOptions,
    chunks_of,
    loss_by_chunks,
    through_softcap,
    widened,
    with_z_loss,
)
from trainwright_trainer.model.next_token import features_at
from trainwright_trainer.model.softcap import softcapped
from trainwright_trainer.parallel.tensor.sequence_parallel import all_gather, reduce_scatter
from trainwright_trainer.runtime.errors import BadJobError


class VocabRange(NamedTuple):
    """A range of the vocabulary."""

    first: int
    size: int


VocabParallelGradient = Callable[..., tuple[Tensor, Tensor]]
"""``vocab_parallel_chunk_gradient``, or its compiled form."""


def local_range(size: int, axis: Axis) -> VocabRange:
    """This rank's range of ``size`` rows; the first ranks have one more if they cannot be equal.

    Raises:
        BadJobError: a rank would have none.
    """
    if size < axis.ranks:
        raise BadJobError(
            f"parallelism.tensor: {axis.ranks} ranks cannot share {size} rows: use at most {size}"
        )
    return _range_of(size, axis.rank, axis.ranks)


def _range_of(size: int, rank: int, ranks: int) -> VocabRange:
    base, more = divmod(size, ranks)
    return VocabRange(rank * base + min(rank, more), base + (rank < more))


class _VocabParallelRows(nn.Module):
    """Looks up this rank's rows; the other ranks contribute theirs."""

    rows: VocabRange
    axis: Axis

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """(B, T) → (B, T/t, D)."""
        offsets_BT = tokens_BT - self.rows.first
        is_here_BT = (offsets_BT >= 0) & (offsets_BT < self.rows.size)
        # A token of another rank looks up an arbitrary row. The remainder spreads these over all
        # rows; their gradients would otherwise be accumulated one after the other in a single row.
        found_BTD: Tensor = super().forward(offsets_BT.remainder(self.rows.size))
        return reduce_scatter(found_BTD.masked_fill(~is_here_BT[..., None], 0.0), self.axis)


class VocabParallelEmbedding(_VocabParallelRows, nn.Embedding):
    """An embedding with this rank's rows of ``vocabulary`` that returns this rank's part of the tokens."""

    def __init__(self, embedding: nn.Embedding, vocabulary: int, axis: Axis) -> None:
        super().__init__(embedding.num_embeddings, embedding.embedding_dim, device="meta")
        self.weight = embedding.weight
        self.rows, self.axis = local_range(vocabulary, axis), axis


class VocabParallelBF16Embedding(_VocabParallelRows, BF16Embedding):
    """``VocabParallelEmbedding`` in bfloat16."""

    def __init__(self, embedding: BF16Embedding, vocabulary: int, axis: Axis) -> None:
        super().__init__(embedding.stored_weight)
        self.rows, self.axis = local_range(vocabulary, axis), axis


def vocab_parallel_head_loss(
    features_BTD: Tensor,
    head_weight_VD: Tensor,
    targets_BT: Tensor,
    *,
    chunk_tokens: int,
    vocabulary: int,
    axis: Axis,
    gradient_of: VocabParallelGradient,
    options: LossOptions = NO_OPTIONS,
) -> Tensor:
    """``model.loss.head_loss`` of a sharded head: the same number, on every rank.

    Args:
        features_BTD: this rank's part of the tokens, (B, T/t, D).
        head_weight_VD: this rank's rows.
        targets_BT: of all tokens.
        vocabulary: rows of all ranks.
    """
    x_ND, targets_N = all_gather(features_BTD, axis).flatten(0, 1), targets_BT.flatten()
    rows = local_range(vocabulary, axis)
    if not torch.is_grad_enabled():
        return _loss_only(x_ND, head_weight_VD, targets_N, chunk_tokens, rows, axis, options.softcap)
    gradient = partial(_bound_gradient, gradient_of, rows, axis, options)
    return loss_by_chunks(x_ND, head_weight_VD, targets_N, chunk_tokens, gradient)


def vocab_parallel_head_logits(
    features_BTD: Tensor,
    head: nn.Module,
    at_B: Tensor,
    *,
    vocabulary: int,
    axis: Axis,
    softcap: float | None = None,
) -> Tensor:
    """``model.next_token.head_logits`` of a sharded head: (B, V) of all ranks' rows, on every rank.

    Args:
        features_BTD: this rank's part of the tokens, (B, T/t, D).
        head: has this rank's rows.
        vocabulary: rows of all ranks.
    """
    x_ND = all_gather(features_BTD, axis).flatten(0, 1)
    own_VB = head(features_at(x_ND.unflatten(0, (len(at_B), -1)), at_B)).t()
    longest = -(-vocabulary // axis.ranks)
    # Collectives need the same number of rows on all ranks.
    padded_VB = pad(own_VB, (0, 0, 0, longest - len(own_VB)))
    parts = axis.all_gather(padded_VB.contiguous()).split(longest)
    sizes = [_range_of(vocabulary, rank, axis.ranks).size for rank in range(axis.ranks)]
    logits_BV = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).t()
    return softcapped(logits_BV, softcap)


def vocab_parallel_chunk_gradient(
    logits_CV: Tensor,
    targets_C: Tensor,
    tokens: int,
    rows: VocabRange,
    axis: Axis,
    options: LossOptions = NO_OPTIONS,
) -> tuple[Tensor, Tensor]:
    """``model.loss.chunk_gradient`` of the logits of ``rows``; the loss is that of the entire vocabulary."""
    capped_CV = logits_CV if options.softcap is None else softcapped(widened(logits_CV), options.softcap)
    log_sum_C, target_C = log_sum_and_target(capped_CV, targets_C, rows, axis)
    columns_V = torch.arange(rows.first, rows.first + rows.size, device=logits_CV.device)
    is_target_CV = targets_C[:, None] == columns_V
    p_CV = (capped_CV.to(log_sum_C.dtype) - log_sum_C[:, None]).exp_()
    gradient_CV = with_z_loss(p_CV, log_sum_C, options.z_loss).add_(is_target_CV, alpha=-1).div_(tokens)
    gradient_CV = through_softcap(gradient_CV, capped_CV, options.softcap)
    return (log_sum_C - target_C).sum() / tokens, gradient_CV.to(logits_CV.dtype)


def _bound_gradient(
    gradient_of: VocabParallelGradient,
    rows: VocabRange,
    axis: Axis,
    options: LossOptions,
    logits_CV: Tensor,
    targets_C: Tensor,
    tokens: int,
) -> tuple[Tensor, Tensor]:
    return gradient_of(logits_CV, targets_C, tokens, rows, axis, options)


def _loss_only(
    x_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    chunk_tokens: int,
    rows: VocabRange,
    axis: Axis,
    softcap: float | None,
) -> Tensor:
    losses = []
    for x_CD, targets_C in zip(*chunks_of(chunk_tokens, x_ND, targets_N), strict=True):
        logits_CV = linear(x_CD, weight_VD)
        capped_CV = logits_CV if softcap is None else softcapped(widened(logits_CV), softcap)
        log_sum_C, target_C = log_sum_and_target(capped_CV, targets_C, rows, axis)
        losses.append((log_sum_C - target_C).sum())
    return torch.stack(losses).sum() / targets_N.numel()


def log_sum_and_target(
    logits_CV: Tensor, targets_C: Tensor, rows: VocabRange, axis: Axis
) -> tuple[Tensor, Tensor]:
    """(C,) float32 each: log Σ exp of all logits of a token, and its target's logit."""
    wide_CV = widened(logits_CV)
    offsets_C = targets_C - rows.first
    is_here_C = (offsets_C >= 0) & (offsets_C < rows.size)
    found_C = wide_CV.gather(1, offsets_C.remainder(rows.size)[:, None])[:, 0]
    own_2C = torch.stack((wide_CV.logsumexp(1), found_C.where(is_here_C, 0.0)))
    log_sums_RC, targets_RC = axis.all_gather(own_2C[None]).unbind(1)
    return log_sums_RC.logsumexp(0), targets_RC.sum(0)
