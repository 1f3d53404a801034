"""Attention within documents that are packed into one sequence (`batch.document_mask`): no document sees another.

A sequence is cut out of a stream of documents, each with the end of a text as its last token. That token still belongs to the
document before it, and its target is the first token of the next one (Megatron-LM's `reset_attention_mask` and
`reset_position_ids`; Llama 3, arXiv 2407.21783, section 3.2). Everything that attention needs to know follows from where the
document of each token starts.

    B sequence   T position   K features of a head
"""

from __future__ import annotations

import torch
from torch import Tensor


def document_starts(tokens_BT: Tensor, end_of_text: int) -> Tensor:
    """(B, T) int64: the position of the first token of each token's document. A sequence may begin within a document."""
    positions_T = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
    begins_BT = torch.nn.functional.pad(tokens_BT[:, :-1] == end_of_text, (1, 0))
    return torch.where(begins_BT, positions_T, 0).cummax(1).values


def positions_within(starts_BT: Tensor) -> Tensor:
    """(B, T): positions that restart with each document."""
    return torch.arange(starts_BT.shape[1], device=starts_BT.device) - starts_BT


def by_position(table_TK: Tensor, starts_BT: Tensor) -> Tensor:
    """(B, 1, T, K): the rows of a table that belong to ``positions_within``."""
    return table_TK[positions_within(starts_BT)][:, None]


def is_first(starts_BT: Tensor) -> Tensor:
    """(B, T, 1): which tokens begin a document."""
    return (positions_within(starts_BT) == 0)[..., None]
