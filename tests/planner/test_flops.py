"""Counts match published figures or a calculation by hand."""

import pytest

from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import MemorySpec
from trainwright.planner.flops import count_parameters, flops_per_token, recomputed_flops_per_token

LLAMA_2_7B = ModelSpec(layers=32, width=4_096, heads=32, feed_forward=11_008, tied_embeddings=False)
LLAMA_3_8B = ModelSpec(
    layers=32, width=4_096, heads=32, kv_heads=8, feed_forward=14_336, tied_embeddings=False
)


@pytest.mark.parametrize(
    ("model", "vocabulary", "total"),
    [
        (LLAMA_2_7B, 32_000, 6_738_415_616),  # both from the published weights
        (LLAMA_3_8B, 128_256, 8_030_261_248),
        # 10·8 + 2·(8·(2·8 + 2·4) + 3·8·32) + 5·8: embedding, two layers of 192 + 768, five norms
        (ModelSpec(layers=2, width=8, heads=2, kv_heads=1, feed_forward=32), 10, 2_040),
    ],
)
def test_parameters(model: ModelSpec, vocabulary: int, total: int) -> None:
    assert count_parameters(model, vocabulary, 32).total == total


def test_parameters_by_part() -> None:
    parts = count_parameters(LLAMA_2_7B, 32_000, 4_096)
    assert parts.embedding == parts.head == 131_072_000
    assert parts.attention == 32 * 4 * 4_096**2
    assert parts.feed_forward == 32 * 3 * 4_096 * 11_008
    assert parts.norms == 65 * 4_096


def test_flops_of_a_token() -> None:
    """Llama 2 7B at 4,096 tokens: 6 · (6,738,415,616 - 131,072,000 - 266,240) + 12 · 32 · 4,096 · 4,096."""
    assert flops_per_token(LLAMA_2_7B, 32_000, 4_096) == 6 * 6_607_077_376 + 6_442_450_944


def test_tying_saves_weights_but_no_arithmetic() -> None:
    tied = LLAMA_2_7B.model_copy(update={"tied_embeddings": True})
    assert count_parameters(tied, 32_000, 4_096).total == 6_738_415_616 - 131_072_000
    assert flops_per_token(tied, 32_000, 4_096) == flops_per_token(LLAMA_2_7B, 32_000, 4_096)


@pytest.mark.parametrize(
    ("memory", "flops"),
    [
        ({}, 0),
        ({"recompute": "selective"}, 0),
        # A layer has 8·(2·8 + 2·4) + 3·8·32 = 960 weights. Attention mixes 8 features over 16 tokens, twice.
        ({"recompute": "full"}, 2 * (2 * 960 + 4 * 8 * 16)),
        ({"recompute": "full", "recompute_layers": "1"}, 2 * 960 + 4 * 8 * 16),
    ],
)
def test_only_recomputed_operations_count_twice(memory: dict[str, str], flops: int) -> None:
    model = ModelSpec(layers=2, width=8, heads=2, kv_heads=1, feed_forward=32)
    assert recomputed_flops_per_token(model, MemorySpec.model_validate(memory), 16) == flops
