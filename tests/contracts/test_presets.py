"""Published models have their published numbers of parameters, and presets are grouped by family."""

import pytest

from trainwright.contracts.export_architecture import architecture_of
from trainwright.contracts.presets import PRESET_FAMILIES, PRESETS, PUBLISHED
from trainwright.planner.flops import count_parameters

COUNTED = [name for name, each in PUBLISHED.items() if each.parameters is not None]


@pytest.mark.parametrize("name", COUNTED)
def test_a_published_model_has_its_published_parameters(name: str) -> None:
    published = PUBLISHED[name]
    counted = count_parameters(published.model, published.vocabulary, published.sequence_tokens).total
    assert counted == pytest.approx(published.parameters, rel=0.005, abs=published.rounding)
    assert f"{published.family} {published.source}".strip()


def test_a_wrong_width_is_detected() -> None:
    published = PUBLISHED["llama-2-7b"]
    wider = published.model.model_copy(update={"feed_forward": 11_264})
    counted = count_parameters(wider, published.vocabulary, published.sequence_tokens).total
    assert counted != pytest.approx(published.parameters, rel=0.005)


def test_each_preset_has_a_family_with_a_small_model() -> None:
    assert list(PRESET_FAMILIES) == list(PRESETS)
    smallest = {family: float("inf") for family in PRESET_FAMILIES.values()}
    for name, model in PRESETS.items():
        size = count_parameters(model, 4_096, 128).total
        smallest[PRESET_FAMILIES[name]] = min(size, smallest[PRESET_FAMILIES[name]])
    assert all(size < 2_000_000 for size in smallest.values())


CLASSES = {
    "Llama 2": "LlamaForCausalLM",
    "Llama 3": "LlamaForCausalLM",
    "Qwen3": "Qwen3ForCausalLM",
    "Gemma": "GemmaForCausalLM",
    "Yuan 2.0": "TrainwrightForCausalLM",
    "Gemma 2": "Gemma2ForCausalLM",
    "SmolLM3": "SmolLM3ForCausalLM",
    "GPT-2": "GPT2LMHeadModel",
    "GPT-3": "GPT2LMHeadModel",
    "MegaScale": "TrainwrightForCausalLM",
    "Yuan 1.0": "GPT2LMHeadModel",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_is_exported_as_the_class_of_its_family(name: str) -> None:
    assert architecture_of(PUBLISHED[name].model).architecture == CLASSES[PUBLISHED[name].family]
