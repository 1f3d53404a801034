"""Localized filtering attention (Yuan 2.0, arXiv 2311.15786): queries and keys come from an input in which each token has been
mixed with the two before it. Values come from the input itself.

    h_t = first · [x_(t-1), x_t] + b      D → D/2       a causal convolution over two tokens, as one matmul
    y_t = second · [h_(t-1), h_t] + c     D/2 → D       another
    f_t = RMSNorm(x_t + y_t)

Before the first token of a text, and of each document if documents are masked, x_(-1) and h_(-1) are zero. h_(-1) is not
the output of the first convolution for zeros, which is its bias b. So decoding keeps the last two inputs and the number
of tokens so far (``FilterState``). Yuan's public decoder does not keep that number, so its second token differs from the
one that training computes.

    B sequence   T position   D width
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.linear.bias import Bias
from trainwright_trainer.linear.norms import RMSNorm
from trainwright_trainer.model.attention import Attention, AttentionTables
from trainwright_trainer.model.partial_sum import PartialSum

_EPSILON = 1e-6


class FilterState(NamedTuple):
    """The state of decoding after the tokens so far."""

    inputs: Tensor
    """(B, 2, D): the last two; zeros where there were none."""

    tokens: Tensor
    """(B,): number of tokens so far."""


class LocalFilter(nn.Module):
    """(B, T, D) → (B, T, D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * width, width // 2, bias=False)
        self.first_bias = Bias(width // 2)
        self.second = nn.Linear(width, width, bias=False)
        self.second_bias = Bias(width)
        self.sum = PartialSum()
        self.norm = RMSNorm(width, eps=_EPSILON)

    def forward(self, x_BTD: Tensor, is_first_BT1: Tensor | None = None) -> Tensor:
        h_BTE = self.first_bias(self.first(with_previous(x_BTD, is_first_BT1)))
        return self._mix(x_BTD, h_BTE, previous(h_BTE, is_first_BT1))

    def continue_from(self, state: FilterState, x_BTD: Tensor) -> tuple[Tensor, FilterState]:
        """``forward`` of the tokens that follow those of ``state``, and the state after them."""
        seen_BTD = torch.cat((state.inputs, x_BTD), dim=1)
        pairs = torch.cat((seen_BTD[:, :-1], seen_BTD[:, 1:]), dim=-1)
        h_BTE = self.first_bias(self.first(pairs))
        is_start_B11 = (state.tokens == 0)[:, None, None]
        h_BTE = torch.cat((h_BTE[:, :1].masked_fill(is_start_B11, 0), h_BTE[:, 1:]), dim=1)
        found_BTD = self._mix(x_BTD, h_BTE[:, 1:], h_BTE[:, :-1])
        return found_BTD, FilterState(seen_BTD[:, -2:], state.tokens + x_BTD.shape[1])

    def _mix(self, x_BTD: Tensor, h_BTE: Tensor, before_BTE: Tensor) -> Tensor:
        # Feature by feature, so that the columns of a tensor rank belong to the features that it has.
        pairs_BTD = torch.stack((before_BTE, h_BTE), dim=-1).flatten(2)
        y_BTD = self.sum(self.second(pairs_BTD))
        filtered_BTD: Tensor = self.norm(x_BTD + self.second_bias(y_BTD).to(x_BTD.dtype))
        return filtered_BTD


def empty_state(x_BTD: Tensor) -> FilterState:
    """The state before the first token of texts with inputs like ``x_BTD``."""
    texts = x_BTD.shape[0]
    return FilterState(x_BTD.new_zeros(texts, 2, x_BTD.shape[2]), x_BTD.new_zeros(texts, dtype=torch.int64))


def previous(x_BTD: Tensor, is_first_BT1: Tensor | None = None) -> Tensor:
    """The token before each; zeros before the first of the sequence, and before others that are named first."""
    before_BTD = nn.functional.pad(x_BTD, (0, 0, 1, 0))[:, :-1]
    return before_BTD if is_first_BT1 is None else before_BTD.masked_fill(is_first_BT1, 0)


def with_previous(x_BTD: Tensor, is_first_BT1: Tensor | None = None) -> Tensor:
    """(B, T, 2D): each token's predecessor and itself."""
    return torch.cat((previous(x_BTD, is_first_BT1), x_BTD), dim=-1)


class LocalizedFilteringAttention(Attention):
    """(B, T, D) → (B, T, D)."""

    def __init__(self, spec: ModelSpec, layer: int = 0) -> None:
        super().__init__(spec, layer)
        self.filter = LocalFilter(spec.width)

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        filtered_BTD = self._filtered(x_BTD, tables)
        mixed: Tensor = self.output(
            self.mix(tables, self.query(filtered_BTD), self.key(filtered_BTD), self.value(x_BTD))
        )
        return mixed

    def _filtered(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        cache = tables.cache
        if cache is not None:
            (inputs_BTD,) = cache.extend(self.filter, x_BTD)
            if cache.starts is not None:
                starts_B = torch.tensor(cache.starts, device=x_BTD.device)
                state = FilterState(cache.before(inputs_BTD, 2), starts_B)
                return self.filter.continue_from(state, x_BTD)[0]
        filtered_BTD: Tensor = self.filter(x_BTD, tables.is_first)
        return filtered_BTD
