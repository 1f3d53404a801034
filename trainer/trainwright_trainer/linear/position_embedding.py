"""A learned vector for each position (GPT-2, Radford et al. 2019), as passes over the model treat it: unlike the embedding of
tokens, each tensor rank has the entire table, and looks up the positions of its own tokens.

    B sequence   T position   D width
"""

from __future__ import annotations

from torch import nn


class PositionEmbedding(nn.Embedding):
    """Positions (B, T) → (B, T, D), to be added to the embedded tokens."""
