"""A decoder, from token ids to logits. It contains nothing about how it is trained.

    x ← x + attention(norm(x));  x ← x + feed_forward(norm(x));   logits = head(norm(x))

With post-norms (Gemma 2, arXiv 2408.00118) the results of both parts pass another norm before they are added.
A parallel block has one norm, and x ← x + attention(norm(x)) + feed_forward(norm(x)).

No module here depends on precision, devices or ranks. Parameter names are canonical: checkpoints use them, and an
export renames them one by one.

    B sequence   T position   N new position   D width   V vocabulary
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.linear.bias import optional_bias
from trainwright_trainer.linear.position_embedding import PositionEmbedding
from trainwright_trainer.model.attention import AttentionTables
from trainwright_trainer.model.attention_registry import build_attention
from trainwright_trainer.model.documents import (
    by_position,
    document_starts,
    is_first,
    positions_within,
)
from trainwright_trainer.model.feed_forward import FeedForward
from trainwright_trainer.model.key_value_cache import KeyValueCache
from trainwright_trainer.model.masks import DenseMasks, Masks, Visible
from trainwright_trainer.model.norm import build_norm
from trainwright_trainer.model.rotary import rotary_table
from trainwright_trainer.model.softcap import softcapped


def multiplied(x_BTD: Tensor, multiplier: float) -> Tensor:
    """``x_BTD`` itself if there is nothing to multiply by."""
    return x_BTD if multiplier == 1 else x_BTD * multiplier


class Block(nn.Module):
    """One layer. (B, T, D) → (B, T, D)."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.attention_norm = build_norm(spec)
        self.attention = build_attention(spec, layer)
        self.feed_forward_norm = build_norm(spec)
        self.feed_forward = FeedForward(spec)
        self.attention_post_norm, self.feed_forward_post_norm = (
            build_norm(spec) if spec.post_norms else nn.Identity() for _ in range(2)
        )
        # Tensor ranks have added up what the parts return, and must add the biases of their last layers once.
        self.multiplier = spec.residual_multiplier
        self.attention_bias = optional_bias(spec.width, spec.biases == "all")
        self.feed_forward_bias = optional_bias(spec.width, spec.biases == "all")

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        attended_BTD = self.attention_bias(self.attention(self.attention_norm(x_BTD), tables))
        x_BTD = x_BTD + multiplied(self.attention_post_norm(attended_BTD), self.multiplier)
        forwarded_BTD = self.feed_forward_bias(self.feed_forward(self.feed_forward_norm(x_BTD)))
        return x_BTD + multiplied(self.feed_forward_post_norm(forwarded_BTD), self.multiplier)


class ParallelBlock(nn.Module):
    """One layer whose two parts read the same input (PaLM, Chowdhery et al. 2022; MegaScale, Jiang et al. 2024).
    (B, T, D) → (B, T, D).

    So tensor ranks gather one input for a block and sum one output (``parallel.tensor.parallelize``).
    """

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        super().__init__()
        self.norm = build_norm(spec)
        self.attention = build_attention(spec, layer)
        self.feed_forward = FeedForward(spec)
        self.multiplier = spec.residual_multiplier
        self.bias = optional_bias(spec.width, spec.biases == "all")

    def forward(self, x_BTD: Tensor, tables: AttentionTables) -> Tensor:
        added_BTD: Tensor = self.bias(self.both(self.norm(x_BTD), tables))
        return x_BTD + multiplied(added_BTD, self.multiplier)

    def both(self, normed_BTD: Tensor, tables: AttentionTables) -> Tensor:
        """What the block adds to the stream, except its bias."""
        attended_BTD: Tensor = self.attention(normed_BTD, tables)
        forwarded_BTD: Tensor = self.feed_forward(normed_BTD)
        return attended_BTD + forwarded_BTD


_BLOCKS: dict[str, type[Block] | type[ParallelBlock]] = {"serial": Block, "parallel": ParallelBlock}


class Transformer(nn.Module):
    """Token ids (B, T) → logits (B, T, V), for T up to ``positions``."""

    cosines: Tensor
    sines: Tensor
    masks: Masks

    def __init__(
        self, spec: ModelSpec, vocabulary: int, positions: int, end_of_text: int | None = None
    ) -> None:
        """``end_of_text``: the last token of each document, if documents in one sequence must not see each other."""
        super().__init__()
        self.positions = positions
        self.end_of_text = end_of_text
        self.embedding = nn.Embedding(vocabulary, spec.width)
        self._embedding_multiplier = spec.embedding_multiplier
        self.position_embedding: nn.Module | None = None
        if spec.positions == "learned":
            self.position_embedding = PositionEmbedding(positions, spec.width)
        self.layers = nn.ModuleDict(
            {str(layer): _BLOCKS[spec.block](spec, layer) for layer in range(spec.layers)}
        )
        self.norm = build_norm(spec)
        self.head = nn.Linear(spec.width, vocabulary, bias=False)
        if spec.tied_embeddings:
            self.head.weight = self.embedding.weight
        self._rotary = spec.rotary_features, spec.rope_theta, spec.rope_scaling
        self._window, self.masks = spec.sliding_window, DenseMasks()
        self._has_softcap, self.logit_softcap = (
            spec.attn_logit_softcapping is not None,
            spec.final_logit_softcapping,
        )
        self.fill_tables()

    def fill_tables(self) -> None:
        """Compute the rotary tables on torch's current default device; called again for a model built on the
        meta device.
        """
        cosines, sines = rotary_table(self.positions, *self._rotary)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def starts(self, tokens_BT: Tensor, cache: KeyValueCache | None = None) -> Tensor | None:
        """(B, T): where the document of each token starts; None if no mask depends on it."""
        if self.end_of_text is None or (cache is not None and cache.starts is not None):
            return None
        return document_starts(tokens_BT, self.end_of_text)

    def tables(
        self,
        length: int,
        dtype: torch.dtype,
        starts_BT: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> AttentionTables:
        """The inputs of all layers' attention, for ``length`` tokens of each sequence and a residual stream of ``dtype``."""
        if cache is not None and cache.starts is not None:
            at_BN = self._positions_in(cache, length, self.cosines.device)
            return AttentionTables(self.cosines[at_BN][:, None], self.sines[at_BN][:, None], cache=cache)

        def mask(window: int | None) -> Any:
            return self.masks.build(length, Visible(window, starts_BT), dtype, self.cosines.device)

        window = self._window if self._window is not None and self._window < length else None
        window_mask = None if window is None else mask(window)
        if starts_BT is None:
            full_mask = mask(None) if self._has_softcap else None
            return AttentionTables(
                self.cosines[:length], self.sines[:length], full_mask, window_mask, cache=cache
            )
        return AttentionTables(
            by_position(self.cosines, starts_BT),
            by_position(self.sines, starts_BT),
            mask(None),
            window_mask,
            is_first(starts_BT),
            cache,
        )

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.logits(self.features(tokens_BT))

    def logits(self, features: Tensor) -> Tensor:
        """(…, D) → (…, V)."""
        return softcapped(self.head(features), self.logit_softcap)

    def embed(
        self, tokens_BT: Tensor, starts_BT: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> Tensor:
        """The residual stream before the first block: (B, T, D)."""
        x_BTD = multiplied(self.embedding(tokens_BT), self._embedding_multiplier)
        if self.position_embedding is None:
            return x_BTD
        learned_BTD: Tensor = self.position_embedding(self._positions_of(tokens_BT, starts_BT, cache))
        return x_BTD + learned_BTD

    def _positions_of(
        self, tokens_BT: Tensor, starts_BT: Tensor | None, cache: KeyValueCache | None
    ) -> Tensor:
        """(B, T): the position of each token, in its document if documents are masked."""
        length = tokens_BT.shape[1]
        if cache is not None and cache.starts is not None:
            return self._positions_in(cache, length, tokens_BT.device)
        if starts_BT is not None:
            return positions_within(starts_BT)
        return torch.arange(length, device=tokens_BT.device).expand_as(tokens_BT)

    def _positions_in(self, cache: KeyValueCache, length: int, device: torch.device) -> Tensor:
        """(B, N): the positions of the new tokens. Those beyond the last position are padding."""
        return cache.positions(length, device).clamp(max=self.positions - 1)

    def features(self, tokens_BT: Tensor, cache: KeyValueCache | None = None) -> Tensor:
        """The head's input: (B, T, D), normed. A loss may apply the head in chunks (``model.loss``).

        Args:
            cache: of the texts whose first or next tokens are ``tokens_BT``.
        """
        starts_BT = self.starts(tokens_BT, cache)
        x_BTD = self.embed(tokens_BT, starts_BT, cache)
        tables = self.tables(tokens_BT.shape[1], x_BTD.dtype, starts_BT, cache)
        for block in self.layers.values():
            x_BTD = block(x_BTD, tables)
        features_BTD: Tensor = self.norm(x_BTD)
        return features_BTD
