"""Every combination of options: the class of `transformers` that is named for it computes the same, and if none is named, the
file that comes with the export does."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from tests.selection import partly_slow
from tests.trainer.jobs import TINY
from trainwright.contracts.export_architecture import PLAIN, architecture_of, loaded_by
from trainwright.contracts.hugging_face import CLASSES, options_of
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.checkpoint import export_layout, plain_model
from trainwright_trainer.checkpoint.export import exported_tensor, model_config, weight_shapes
from trainwright_trainer.checkpoint.export_layout import stored_tensors
from trainwright_trainer.model.init import initialize
from trainwright_trainer.model.transformer import Transformer

SIZES = {"layers": 3, "width": 16, "heads": 4, "feed_forward": 24, "initializer_std": 0.3}
LLAMA3 = {"factor": 4.0, "original_max_position_embeddings": 8}
YARN = LLAMA3 | {"rope_type": "yarn"}
VALUES: dict[str, list[dict[str, Any]]] = {
    "activation": [{}, {"activation": "geglu"}, {"activation": "gelu"}],
    "norm": [{}, {"norm": "layer"}, {"norm": "layer_without_bias"}],
    "biases": [{}, {"biases": "query_key_value"}, {"biases": "all"}],
    "block": [{}, {"block": "parallel"}, {"post_norms": True}],
    "head norms": [{}, {"qk_norm": True}],
    "windows": [{}, {"sliding_window": 3}, {"sliding_window": 3, "sliding_window_pattern": 2}],
    "multipliers": [{}, {"embedding_multiplier": 4.0}, {"residual_multiplier": 0.5}],
    "key heads": [{}, {"kv_heads": 2}],
    "soft caps": [{}, {"final_logit_softcapping": 1.0, "attn_logit_softcapping": 0.5}],
    "head size": [{}, {"head_size": 8}],
    "positions": [
        {},
        {"positions": "learned"},
        {"positions": "none"},
        {"partial_rotary_factor": 0.5},
        {"rope_scaling": LLAMA3},
        {"rope_scaling": YARN, "partial_rotary_factor": 0.5},
        {"rope_scaling": YARN},
        {"no_rope_layer_interval": 2},
        {"no_rope_layer_interval": 3, "rope_scaling": LLAMA3},
    ],
}


@cache
def combinations() -> dict[str, list[ModelSpec]]:
    """All combinations, by the class that is named for them. Every second model has a separate head."""
    found = defaultdict(list)
    for number, chosen in enumerate(product(*VALUES.values())):
        fields: dict[str, Any] = {name: value for each in chosen for name, value in each.items()}
        model = _BASE.model_copy(update=_parsed(fields) | {"tied_embeddings": number % 2 == 0})
        found[architecture_of(model).architecture].append(model)
    return found


_BASE = ModelSpec.model_validate(SIZES)


def _parsed(fields: dict[str, Any]) -> dict[str, Any]:
    scaling = fields.get("rope_scaling")
    return fields if scaling is None else fields | {"rope_scaling": _scaling(tuple(scaling.items()))}


@cache
def _scaling(fields: tuple[tuple[str, Any], ...]) -> Any:
    return ModelSpec.model_validate({"rope_scaling": dict(fields)}).rope_scaling


def filled(spec: ModelSpec) -> Transformer:
    """A model whose vectors are random too."""
    model = Transformer(spec, 32, 16)
    initialize(model, spec, seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:
                weight.add_(torch.randn(weight.shape, generator=generator) / 4)
    return model


def config_of(spec: ModelSpec) -> dict[str, Any]:
    sections = {"model": spec.model_dump(), "batch": TINY["batch"] | {"sequence_tokens": 16}}
    run = RunSpec.model_validate(TINY | sections)
    return model_config(run) | {"vocab_size": 32}


def exported(model: Transformer, spec: ModelSpec) -> dict[str, Tensor]:
    theirs = architecture_of(spec)
    stored = stored_tensors(theirs, spec, weight_shapes(model))
    return {name: exported_tensor(each, theirs, model.get_parameter) for name, each in stored.items()}


def their_logits(model: Transformer, spec: ModelSpec, tokens: Tensor) -> Tensor:
    config = config_of(spec)
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).eval()
    assert type(theirs).__name__ == architecture_of(spec).architecture
    absent, unexpected = theirs.load_state_dict(exported(model, spec), strict=False)
    assert not unexpected and set(absent) <= set(theirs.all_tied_weights_keys)
    theirs.tie_weights()
    logits: Tensor = theirs(tokens).logits
    return logits


def plain_logits(model: Transformer, spec: ModelSpec, tokens: Tensor) -> Tensor:
    config = config_of(spec)
    plain = plain_model.Model(config["model"], 32, config["max_position_embeddings"])
    plain.load_state_dict(exported(model, spec), strict=not spec.tied_embeddings)
    logits: Tensor = plain(tokens)
    return logits


@torch.no_grad()
def apart(spec: ModelSpec) -> float:
    """How far the exported model's logits are from ours, which are of order 1."""
    tokens = torch.randint(0, 32, (2, 16), generator=torch.Generator().manual_seed(0))
    model = filled(spec)
    ours = model(tokens)
    logits_of = plain_logits if architecture_of(spec) is PLAIN else their_logits
    return float((ours - logits_of(model, spec, tokens)).abs().max() / ours.abs().max())


def some_of(architecture: str, count: int) -> Iterator[ModelSpec]:
    """The simplest, and others from everywhere in the list."""
    found = combinations()[architecture]
    yield from found[:: max(1, len(found) // count)]


NAMES = [each.architecture for each in CLASSES]
SOME = [(name, 4) for name in [*NAMES, PLAIN.architecture]]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("architecture", NAMES)
def test_each_class_computes_some_combination(architecture: str) -> None:
    found = combinations()[architecture]
    assert found
    reached = frozenset().union(*map(options_of, found))
    (named,) = (each for each in CLASSES if each.architecture == architecture)
    assert reached == named.can_have | named.always_has


@pytest.mark.parametrize(
    ("architecture", "count"),
    partly_slow([*SOME, *[(name, 10_000) for name in NAMES], (PLAIN.architecture, 2_000)], SOME),
)
def test_an_exported_model_computes_our_logits(architecture: str, count: int) -> None:
    # About thirty matmuls in sequence, sums of at most 32 terms in float32.
    wrong = [(spec, error) for spec in some_of(architecture, count) if not (error := apart(spec)) <= 1e-4]
    assert not wrong


def test_a_wrong_layout_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    neox = _BASE.model_copy(update={"norm": "layer", "biases": "all", "activation": "gelu"})
    assert architecture_of(neox).architecture == "Starcoder2ForCausalLM"
    parallel = neox.model_copy(update={"block": "parallel"})
    assert architecture_of(parallel).architecture == "GPTNeoXForCausalLM" and apart(parallel) <= 1e-4
    monkeypatch.setattr(export_layout, "_join_heads", lambda parts, heads: torch.cat(list(parts)))
    assert apart(parallel) > 1e-2


def test_wrong_pairs_of_rotated_features_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    cohere = _BASE.model_copy(update={"norm": "layer_without_bias", "block": "parallel"})
    assert architecture_of(cohere).architecture == "CohereForCausalLM" and apart(cohere) <= 1e-4
    monkeypatch.setattr(export_layout, "_bring_pairs_together", lambda parts, heads: parts[0])
    assert apart(cohere) > 1e-2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"activation": "gelu"}, "a class with GELU without a gate also has LayerNorm with a bias"),
        (
            {"norm": "layer_without_bias"},
            "a class with LayerNorm without a bias also has parallel blocks",
        ),
        (
            {"positions": "learned", "norm": "layer", "activation": "gelu"},
            "a class with GELU without a gate, LayerNorm with a bias together with learned positions also has all biases",
        ),
        (
            {"block": "parallel", "sliding_window": 3},
            "no class has parallel blocks together with sliding windows",
        ),
        ({"attention": "localized_filtering"}, "no class has localized filtering attention"),
    ],
)
def test_the_reason_names_the_fewest_options(options: dict[str, Any], sentence: str) -> None:
    model = ModelSpec.model_validate(SIZES | options)
    assert sentence in loaded_by(model)


SHAPING = {"layers", "width", "heads", "feed_forward", "rope_theta", "norm_epsilon", "initializer_std"}
"""Fields that every class has."""


def test_every_other_field_of_a_model_is_an_option() -> None:
    """One that were forgotten would be ignored by the class that is named."""
    fields = (
        set(ModelSpec.model_fields) - SHAPING - {"tied_embeddings", "attention", "sliding_window_pattern"}
    )
    varied = {name for values in VALUES.values() for each in values for name in each}
    assert fields == varied - {"sliding_window_pattern"}
    plain = options_of(_BASE)
    changes = [each for values in VALUES.values() for each in values if each]
    assert all(options_of(_BASE.model_copy(update=_parsed(each))) - plain for each in changes)
