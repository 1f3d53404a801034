"""Parameters and FLOPs of a decoder in closed form, for trainer, backend and planner.

A matmul with a matrix of n elements costs 2·n FLOPs per token forward and twice that backward: 6·n. Attention over T
tokens costs 4·(heads · head size)·T forward, 12 with the backward pass, in each layer. The half that a causal mask
excludes is not subtracted (PaLM, appendix B), so figures are comparable with published ones. A layer with a sliding
window counts the mean number of its keys instead of T (``contracts.block_parts``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trainwright.contracts.block_parts import (
    attention_weights,
    block_weights,
    feed_forward_weights,
    last_norm_size,
    linear_size,
    mixing_flops,
    position_table_size,
)
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind


@dataclass(frozen=True)
class Parameters:
    """Weights of a model, by part."""

    embedding: int
    """Rows of tokens, and of learned positions."""

    attention: int
    feed_forward: int
    norms: int
    """Elements of the norms, and of the biases of layers that add to the residual stream."""

    head: int
    """Zero if the embedding is used as the head."""

    @property
    def total(self) -> int:
        return self.embedding + self.attention + self.feed_forward + self.norms + self.head


def count_parameters(model: ModelSpec, vocabulary: int, sequence_tokens: int) -> Parameters:
    """Weights of ``model`` with ``vocabulary`` token ids, for sequences of ``sequence_tokens``."""
    attention, feed_forward, block = (
        sum(weight.size(model) for weight in weights(model).values())
        for weights in (attention_weights, feed_forward_weights, block_weights)
    )
    return Parameters(
        embedding=vocabulary * model.width + position_table_size(model, sequence_tokens),
        attention=model.layers * attention,
        feed_forward=model.layers * feed_forward,
        norms=model.layers * (block - attention - feed_forward) + last_norm_size(model),
        head=0 if model.tied_embeddings else vocabulary * model.width,
    )


@lru_cache(maxsize=1024)  # pages of runs ask for every run
def flops_per_token(model: ModelSpec, vocabulary: int, sequence_tokens: int) -> int:
    """FLOPs of one token in training, forward and backward: 6·N + 12·L·(heads · head size)·T for full attention.

    N counts the elements of all matrices that a token is multiplied by. That includes the head even if it shares the weights
    of the embedding, but not the embedding lookup and the norms.
    """
    matmuls = model.layers * linear_size(model) + vocabulary * model.width
    mixing = sum(mixing_flops(model, layer, sequence_tokens) for layer in range(model.layers))
    return 6 * matmuls + round(3 * mixing)


def training_flops(spec: RunSpec, begin_step: int = 0) -> float:
    """FLOPs of the steps after ``begin_step``, the step that a fork starts from."""
    tokens = (spec.schedule.steps - begin_step) * spec.tokens_per_step
    per_token = flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    return float(tokens) * per_token


def recomputed_flops_per_token(model: ModelSpec, memory: MemorySpec, sequence_tokens: int) -> int:
    """FLOPs per token of recomputation, which HFU counts and MFU does not (Chowdhery et al. 2022).

    ``full`` repeats the forward pass of a layer, 2·n + 4·(heads · head size)·T. ``selective`` keeps the results of matrix
    matmuls and attention, so it repeats nothing that is counted here.
    """
    if memory.recompute is not RecomputeKind.FULL:
        return 0
    recomputed = [layer for layer in range(model.layers) if memory.recomputes(layer)]
    mixing = sum(mixing_flops(model, layer, sequence_tokens) for layer in recomputed)
    return len(recomputed) * 2 * linear_size(model) + round(mixing)
