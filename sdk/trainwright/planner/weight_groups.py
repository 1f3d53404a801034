"""Which weights of a run decay, and their learning rates, for people who check them before the run starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trainwright.contracts.block_parts import block_weights, last_norm_size, position_table_size
from trainwright.contracts.optimizer_spec import LearningRateFactors
from trainwright.contracts.run_spec import RunSpec

_WHICH = {
    "matrices": "matrices, and neither norms nor biases",
    "block_matrices": "matrices of blocks, and neither embeddings, head, norms nor biases",
    "all": "norms and biases too",
}


_KINDS = {
    "embedding": "embeddings",
    "head": "the head",
    "block_matrices": "matrices in blocks",
    "vectors": "norms and biases",
}


def what_decays(spec: RunSpec) -> str:
    """A sentence."""
    optimizer = spec.optimizer
    if not optimizer.weight_decay:
        return "No weight decays."
    weights = list(_weights(spec))
    total = sum(elements for _, _, elements in weights)
    decayed = sum(elements for name, dims, elements in weights if optimizer.decays(name, dims))
    of_all = f"{decayed:,} of {total:,} weights"
    return f"Weight decay {optimizer.weight_decay:g} is for {of_all}: {_WHICH[optimizer.weight_decay_of]}."


def learning_rates(spec: RunSpec) -> str:
    """A sentence; empty if all weights have one learning rate."""
    optimizer = spec.optimizer
    counts: Counter[tuple[str, float]] = Counter()
    for name, dims, elements in _weights(spec):
        kind = LearningRateFactors.kind_of(name, dims)
        counts[kind, optimizer.learning_rate_factor(name, dims)] += elements
    if all(factor == 1.0 for _, factor in counts):
        return ""
    rates = [
        f"{factor * optimizer.learning_rate:g} for {elements:,} weights of {_KINDS[kind]}"
        for (kind, factor), elements in counts.items()
        if elements
    ]
    return f"The learning rate at the peak is {', '.join(rates)}."


def _weights(spec: RunSpec) -> Iterator[tuple[str, int, int]]:
    """Name, dims and elements; the weights of all layers together."""
    model = spec.model
    for name, weight in block_weights(model).items():
        yield f"layers.0.{name}", len(weight.shape(model)), model.layers * weight.size(model)
    rows = spec.data.tokenizer.size * model.width
    yield "embedding.weight", 2, rows
    yield "position_embedding.weight", 2, position_table_size(model, spec.batch.sequence_tokens)
    yield "norm.weight", 1, last_norm_size(model)
    yield "head.weight", 2, 0 if model.tied_embeddings else rows
