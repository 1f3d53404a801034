"""Parameters and arithmetic of a decoder, in closed form: one count for trainer, backend and planner.

A product with a matrix of n entries costs 2·n FLOPs a token forward and twice that backward: 6·n. Attention compares
and mixes T tokens in each head: 4·(heads · head size)·T forward, 12 with the backward pass, in each layer; that a
causal mask makes half of it superfluous is not subtracted (PaLM, appendix B), so figures compare with published ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import MemorySpec, RecomputeKind


@dataclass(frozen=True)
class Parameters:
    """Weights of a model, by part."""

    embedding: int
    attention: int
    feed_forward: int
    norms: int
    head: int
    """Zero when the embedding is used as the head."""

    @property
    def total(self) -> int:
        return self.embedding + self.attention + self.feed_forward + self.norms + self.head


def count_parameters(model: ModelSpec, vocabulary: int) -> Parameters:
    """Weights of ``model`` with ``vocabulary`` token ids."""
    queries = model.heads * model.features_per_head
    keys = model.key_value_heads * model.features_per_head
    return Parameters(
        embedding=vocabulary * model.width,
        attention=model.layers * model.width * (2 * queries + 2 * keys),
        feed_forward=model.layers * 3 * model.width * model.hidden,
        norms=(2 * model.layers + 1) * model.width,
        head=0 if model.tied_embeddings else vocabulary * model.width,
    )


def flops_per_token(model: ModelSpec, vocabulary: int, sequence_tokens: int) -> int:
    """FLOPs of one token in training, forward and backward: 6·N + 12·L·(heads · head size)·T.

    N counts the matrices that a token is multiplied with: the head's product is among them even when it shares the
    embedding's weights; the embedding's lookup and the norms are no products.
    """
    parameters = count_parameters(model, vocabulary)
    products = parameters.attention + parameters.feed_forward + vocabulary * model.width
    mixing = model.layers * model.heads * model.features_per_head * sequence_tokens
    return 6 * products + 12 * mixing


def training_flops(spec: RunSpec, begin_step: int = 0) -> float:
    """FLOPs of the steps after ``begin_step``, at which a fork begins, to the run's last."""
    tokens = (spec.schedule.steps - begin_step) * spec.tokens_per_step
    per_token = flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    return float(tokens) * per_token


def recomputed_flops_per_token(model: ModelSpec, memory: MemorySpec, sequence_tokens: int) -> int:
    """FLOPs of one token that are made a second time, which MFU leaves out and HFU counts (Chowdhery et al. 2022).

    ``full`` makes the forward pass of a layer again, 2·n + 4·(heads · head size)·T; ``selective`` keeps what products and
    attention give, so that it repeats none of what is counted here.
    """
    if memory.recompute is not RecomputeKind.FULL:
        return 0
    parameters = count_parameters(model, 0)
    products = (parameters.attention + parameters.feed_forward) // model.layers
    mixing = model.heads * model.features_per_head * sequence_tokens
    return sum(memory.recomputes(layer) for layer in range(model.layers)) * (2 * products + 4 * mixing)
