"""Parameters and FLOPs of a decoder in closed form, for trainer, backend and planner.

A product with a matrix of n elements costs 2·n FLOPs per token forward and twice that backward: 6·n. Attention over T tokens
costs 4·(heads · head size)·T forward, 12 with the backward pass, in each layer. The half that a causal mask makes superfluous
is not subtracted (PaLM, appendix B), so that figures are comparable with published ones.
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
    """Zero if the embedding is used as the head."""

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

    N counts the elements of all matrices that a token is multiplied by. That includes the head even if it shares the weights
    of the embedding, but not the embedding lookup and the norms.
    """
    parameters = count_parameters(model, vocabulary)
    products = parameters.attention + parameters.feed_forward + vocabulary * model.width
    mixing = model.layers * model.heads * model.features_per_head * sequence_tokens
    return 6 * products + 12 * mixing


def training_flops(spec: RunSpec, begin_step: int = 0) -> float:
    """FLOPs of the steps after ``begin_step``, the step that a fork starts from."""
    tokens = (spec.schedule.steps - begin_step) * spec.tokens_per_step
    per_token = flops_per_token(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    return float(tokens) * per_token


def recomputed_flops_per_token(model: ModelSpec, memory: MemorySpec, sequence_tokens: int) -> int:
    """FLOPs per token of recomputation, which HFU counts and MFU does not (Chowdhery et al. 2022).

    ``full`` repeats the forward pass of a layer, 2·n + 4·(heads · head size)·T. ``selective`` keeps the results of matrix
    products and attention, so it repeats nothing that is counted here.
    """
    if memory.recompute is not RecomputeKind.FULL:
        return 0
    parameters = count_parameters(model, 0)
    products = (parameters.attention + parameters.feed_forward) // model.layers
    mixing = model.heads * model.features_per_head * sequence_tokens
    return sum(memory.recomputes(layer) for layer in range(model.layers)) * (2 * products + 4 * mixing)
