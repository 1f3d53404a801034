"""The classes of `transformers` that read exports of models whose blocks are like Llama's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # ``model_spec`` itself imports the names of ``ATTENTIONS``
    from trainwright.contracts.model_spec import ModelSpec


@dataclass(frozen=True)
class HuggingFaceArchitecture:
    """The class of `transformers` that reads exports."""

    architecture: str
    model_type: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Fields and properties of ``ModelSpec`` that only this architecture has, by their names in `config.json`."""

    norm_offset: float = 0.0
    """What it adds to the weights of norms."""


LLAMA = HuggingFaceArchitecture("LlamaForCausalLM", "llama")
GEMMA = HuggingFaceArchitecture("GemmaForCausalLM", "gemma", {}, norm_offset=1.0)
GRANITE = HuggingFaceArchitecture(
    "GraniteForCausalLM",
    "granite",
    {
        "embedding_multiplier": "embedding_multiplier",
        "residual_multiplier": "residual_multiplier",
        "attention_multiplier": "attention_scale",
    },
)
QWEN2 = HuggingFaceArchitecture("Qwen2ForCausalLM", "qwen2")
QWEN3 = HuggingFaceArchitecture("Qwen3ForCausalLM", "qwen3")
MISTRAL = HuggingFaceArchitecture("MistralForCausalLM", "mistral", {"sliding_window": "sliding_window"})
MINISTRAL = HuggingFaceArchitecture(
    "MinistralForCausalLM", "ministral", {"sliding_window": "sliding_window", "layer_types": "layer_types"}
)


def has_multipliers(model: ModelSpec) -> bool:
    """Whether embedded tokens, or what is added to the residual stream, are multiplied."""
    return model.embedding_multiplier != 1 or model.residual_multiplier != 1


def _is_gemma(model: ModelSpec) -> bool:
    is_root = math.isclose(model.embedding_multiplier, math.sqrt(model.width), rel_tol=1e-6)
    is_plain = model.residual_multiplier == 1 and model.biases == "none"
    return is_root and is_plain and model.activation == "geglu"


def llama_like(model: ModelSpec) -> HuggingFaceArchitecture:
    """All compute the same except for multipliers, norms of heads, biases, and windows: none, in all layers, in some
    layers.
    """
    if has_multipliers(model):
        return GEMMA if _is_gemma(model) else GRANITE
    if model.qk_norm:
        return QWEN3
    if model.biases == "query_key_value":
        return QWEN2
    if model.sliding_window is None:
        return LLAMA
    return MISTRAL if model.sliding_window_pattern is None else MINISTRAL
