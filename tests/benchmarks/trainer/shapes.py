"""Models that the GPU rows train: Llama-style, heads of 128 features, and the batch of each."""

from __future__ import annotations

from tests.benchmarks.trainer.timed_training import Shape
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec


def _llama(
    layers: int,
    width: int,
    feed_forward: int,
    vocabulary: int,
    batch: tuple[int, int, int],
    kv_heads: int | None = None,
) -> Shape:
    """``batch`` is (tokens of a sequence, sequences of a micro batch, sequences of a step)."""
    tokens, micro, whole = batch
    return Shape(
        ModelSpec(
            layers=layers,
            width=width,
            heads=width // 128,
            kv_heads=kv_heads,
            feed_forward=feed_forward,
            tied_embeddings=False,
        ),
        vocabulary,
        BatchSpec(sequence_tokens=tokens, micro_sequences=micro, global_sequences=whole),
    )


SHAPES: dict[str, Shape] = {
    "1.3b": _llama(24, 2_048, 5_504, 32_000, (4_096, 4, 8)),
    "3b": _llama(28, 3_072, 8_192, 32_000, (4_096, 4, 8)),
    # One sequence at a time: in bfloat16 two do not fit 139 GiB.
    "7b": _llama(32, 4_096, 11_008, 32_000, (4_096, 1, 8)),
    "8b": _llama(32, 4_096, 14_336, 128_256, (4_096, 1, 1), kv_heads=8),
    # Compared with other trainers: the width and depth of Llama-3.2-1B, 65,536 tokens a step.
    "peer": _llama(16, 2_048, 8_192, 128_256, (4_096, 4, 16), kv_heads=8),
}

TOY = Shape(
    ModelSpec(layers=2, width=64, heads=2, kv_heads=1, feed_forward=128, tied_embeddings=False),
    512,
    BatchSpec(sequence_tokens=64, micro_sequences=2, global_sequences=4),
)
"""Replaces every shape in a dry run."""
