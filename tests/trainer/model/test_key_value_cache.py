"""With the cache, a model computes the same as from entire texts, and reads each token once."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.model.option_trainings import LENGTH, build
from trainwright.contracts.model_spec import ModelSpec
from trainwright_trainer.model import key_value_cache
from trainwright_trainer.model.key_value_cache import KeyValueCache, next_pass
from trainwright_trainer.model.transformer import Transformer

OPTIONS: dict[str, dict[str, Any]] = {
    "full": {},
    "window": {"sliding_window": 3},
    "window in some layers": {"sliding_window": 3, "sliding_window_pattern": 2},
    "localized filtering": {"attention": "localized_filtering"},
    "localized filtering with a window": {"attention": "localized_filtering", "sliding_window": 3},
    "parallel block": {"block": "parallel"},
    "learned positions": {"positions": "learned"},
    "soft caps": {"attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0, "sliding_window": 3},
    "rotary positions in some layers": {"no_rope_layer_interval": 2, "partial_rotary_factor": 0.5},
}
TEXTS = [[5], [7, 1, 9, 30, 2], [11, 4]]
"""Texts of different lengths; one is shorter than the two tokens that a filter reads."""

CLOSE = 1e-4
"""Logits of order 10 in float32, summed in another order."""


def model_with(option: str) -> Transformer:
    sizes = {"layers": 3, "width": 32, "heads": 4, "kv_heads": 2}
    return build(ModelSpec.model_validate(sizes | OPTIONS[option]))


def decode(model: Transformer, count: int, unit: int = 1) -> tuple[list[int], float]:
    """Continue ``TEXTS`` greedily by ``count`` tokens.

    Returns the tokens of a text that each pass read, and how far logits are from those of entire texts.

    ``unit``: tokens of a pass are padded to a multiple of it.
    """
    rows, read, apart = [list(ids) for ids in TEXTS], [], 0.0
    cache: KeyValueCache | None = None
    for _ in range(count):
        cache, new = next_pass(rows, cache, model.positions, model.end_of_text)
        length = min(model.positions, -(-max(map(len, new)) // unit) * unit)
        padded = torch.tensor([ids + [63] * (length - len(ids)) for ids in new])
        with torch.no_grad():
            features_BTD = model.features(padded, cache)
            logits_BV = torch.stack(
                [model.logits(features_BTD[row, len(ids) - 1]) for row, ids in enumerate(new)]
            )
            whole_BV = torch.stack([_from_whole_text(model, ids) for ids in rows])
        apart = max(apart, float((logits_BV - whole_BV).abs().max()))
        read.append(length)
        for ids, token in zip(rows, whole_BV.argmax(-1).tolist(), strict=True):
            ids.append(token)
    return read, apart


def _from_whole_text(model: Transformer, ids: list[int]) -> Tensor:
    logits_V: Tensor = model(torch.tensor([ids[-model.positions :]]))[0, -1]
    return logits_V


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("unit", [1, 4])
def test_logits_are_those_of_entire_texts(option: str, unit: int) -> None:
    longest = max(map(len, TEXTS))
    read, apart = decode(model_with(option), LENGTH - longest, unit)
    assert apart < CLOSE
    assert read == [-(-longest // unit) * unit, *[unit] * (LENGTH - longest - 1)]


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(("end_of_text", "reads"), [(62, [5, 1, 1, 1]), (9, [5, 6, 7, 8])])
def test_logits_are_those_of_texts_whose_documents_are_masked(
    option: str, end_of_text: int, reads: list[int]
) -> None:
    model = model_with(option)
    model.end_of_text = end_of_text
    read, apart = decode(model, 4)
    assert apart < CLOSE
    assert read == reads


@pytest.mark.parametrize("option", OPTIONS)
def test_a_text_that_ended_at_its_first_token_changes_no_other(option: str) -> None:
    """It stays in the batch, with its first token in each pass."""
    model = model_with(option)
    rows = [list(ids) for ids in TEXTS]
    cache, new = next_pass(rows, None, model.positions)
    padded = torch.tensor([ids + [63] * (max(map(len, new)) - len(ids)) for ids in new])
    with torch.no_grad():
        model.features(padded, cache)
        for ids in rows[1:]:
            ids.append(3)
        cache, new = next_pass(rows, cache, model.positions)
        logits_BV = model.logits(model.features(torch.tensor(new), cache)[:, -1])
        whole_BV = torch.stack([_from_whole_text(model, ids) for ids in rows])
    assert float((logits_BV - whole_BV).abs().max()) < CLOSE


def test_a_text_longer_than_a_sequence_is_read_from_its_last_tokens() -> None:
    read, apart = decode(model_with("full"), LENGTH)
    assert apart < CLOSE
    assert read[-1] == LENGTH


@pytest.mark.parametrize("option", OPTIONS)
def test_a_mask_with_one_key_too_few_is_detected(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = key_value_cache.sees
    monkeypatch.setattr(key_value_cache, "sees", lambda query, key, window: honest(query - 1, key, window))
    _, apart = decode(model_with(option), 4)
    assert apart > 1e-3
