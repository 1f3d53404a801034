"""Cross-entropy of the next token, in nats.

B sequence   T position   V vocabulary
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy


def next_token_loss(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """Mean over all tokens, a float32 scalar whatever the dtype of the logits."""
    return cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten())
