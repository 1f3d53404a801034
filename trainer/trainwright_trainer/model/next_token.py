"""The next token: its logits from the features of a position, and a draw from them.

B sequence   T position   D width   V vocabulary
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from trainwright_trainer.model.softcap import softcapped

HeadLogits = Callable[[Tensor, nn.Module, Tensor], Tensor]
"""``head_logits``, or that of a sharded head."""


def head_logits(features_BTD: Tensor, head: nn.Module, at_B: Tensor, softcap: float | None = None) -> Tensor:
    """Logits (B, V) of the tokens after the positions ``at_B``, one per sequence."""
    return softcapped(head(features_at(features_BTD, at_B)), softcap)


def features_at(features_BTD: Tensor, at_B: Tensor) -> Tensor:
    """(B, D): the features of one position per sequence."""
    return features_BTD[torch.arange(len(at_B), device=at_B.device), at_B]


def draw_token(logits_V: Tensor, temperature: float, generator: torch.Generator) -> int:
    """Draw the id of a token; temperature 0 always takes the most likely one.

    Even a tiny temperature overflows nothing, because the largest logit is 0 before the division.
    """
    if temperature == 0:
        return int(logits_V.argmax())
    below_largest_V = logits_V.double() - logits_V.max()
    return int(torch.multinomial((below_largest_V / temperature).softmax(-1), 1, generator=generator))
