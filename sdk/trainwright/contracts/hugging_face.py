"""The classes of `transformers` that read exports, and what each computes.

A class is named only if it computes the same as the model. What a model has beyond the simplest Llama is a set of options in
plain words; a class lists those that it can have and those that it always has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # ``model_spec`` itself imports the names of ``ATTENTIONS``
    from trainwright.contracts.model_spec import ModelSpec

Options = frozenset[str]

GEGLU, GELU = "GEGLU", "GELU without a gate"
LAYER_NORM, LAYER_NORM_WITHOUT_BIAS = "LayerNorm with a bias", "LayerNorm without a bias"
QKV_BIASES, ALL_BIASES = "biases of queries, keys and values only", "all biases"
HEAD_NORMS = "norms of queries and keys"
WINDOWS, SOME_WINDOWS = "sliding windows in all layers", "sliding windows in some layers"
ROOT_OF_WIDTH, MULTIPLIERS = "embedded tokens multiplied by √width", "other multipliers"
PARALLEL = "parallel blocks"
SHARED_KEYS, OWN_HEAD_SIZE = "heads that share keys", "a head size that differs from width ÷ heads"
LEARNED, NO_POSITIONS = "learned positions", "no positions"
PARTIAL, SCALED = "partly rotated heads", "scaled rotary positions"
SOME_ROTARY = "rotary positions in some layers"
SOFT_CAPS, POST_NORMS = "soft caps", "norms after attention and feed-forward network"


def options_of(model: ModelSpec) -> Options:
    """What ``model`` has that is not in the simplest Llama, apart from its variant of attention."""
    return frozenset(_options(model))


def _options(model: ModelSpec) -> Iterator[str]:
    chosen = {
        "geglu": GEGLU,
        "gelu": GELU,
        "layer": LAYER_NORM,
        "layer_without_bias": LAYER_NORM_WITHOUT_BIAS,
        "query_key_value": QKV_BIASES,
        "all": ALL_BIASES,
        "parallel": PARALLEL,
        "learned": LEARNED,
        "none": NO_POSITIONS,
    }
    named: list[str] = [model.activation, model.norm, model.block, model.positions]
    named += [model.biases] if model.biases != "none" else []
    yield from (chosen[each] for each in named if each in chosen)
    if model.qk_norm:
        yield HEAD_NORMS
    if model.sliding_window is not None:
        yield WINDOWS if model.sliding_window_pattern is None else SOME_WINDOWS
    if model.residual_multiplier != 1 or model.embedding_multiplier != 1:
        is_root = math.isclose(model.embedding_multiplier, math.sqrt(model.width), rel_tol=1e-6)
        yield ROOT_OF_WIDTH if is_root and model.residual_multiplier == 1 else MULTIPLIERS
    if model.key_value_heads != model.heads:
        yield SHARED_KEYS
    if model.query_features != model.width:
        yield OWN_HEAD_SIZE
    if model.partial_rotary_factor != 1:
        yield PARTIAL
    if model.rope_scaling is not None:
        yield SCALED
    if model.no_rope_layer_interval is not None:
        yield SOME_ROTARY
    if model.attn_logit_softcapping is not None or model.final_logit_softcapping is not None:
        yield SOFT_CAPS
    if model.post_norms:
        yield POST_NORMS


@dataclass(frozen=True)
class HuggingFaceArchitecture:
    """The class of `transformers` that reads exports."""

    architecture: str
    model_type: str
    can_have: Options = frozenset()
    """Options that a model of this class may have or not."""

    always_has: Options = frozenset()
    settings: Callable[[ModelSpec], Mapping[str, Any]] = lambda m: {}
    """Keys of `config.json` that only some classes have."""

    norm_offset: float = 0.0
    """What it adds to the weights of norms."""

    def computes(self, options: Options) -> bool:
        """Whether it computes a model with ``options``."""
        return self.always_has <= options <= self.can_have | self.always_has


def _windows(model: ModelSpec) -> dict[str, Any]:
    return {
        "sliding_window": model.sliding_window,
        "use_sliding_window": model.sliding_window is not None,
        "layer_types": model.layer_types,
    }


def _gemma_2(model: ModelSpec) -> dict[str, Any]:
    return _windows(model) | {
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "query_pre_attn_scalar": model.features_per_head,
        "attn_logit_softcapping": model.attn_logit_softcapping,
        "final_logit_softcapping": model.final_logit_softcapping,
        "sliding_window": model.sliding_window or 2**20,  # it must be set, even if no layer has it
    }


def _gemma_3(model: ModelSpec) -> dict[str, Any]:
    scaling = {} if model.rope_scaling is None else model.rope_scaling.parameters
    rotary = {"rope_theta": model.rope_theta, "rope_type": "default"} | scaling
    # It can rotate differently in layers with a window. Ours are all the same.
    positions = dict.fromkeys(("full_attention", "sliding_attention"), rotary)
    return _gemma_2(model) | {"rope_parameters": positions}


_COMMON = {SHARED_KEYS, OWN_HEAD_SIZE, GEGLU, SCALED}
_GEMMA_2 = frozenset({SHARED_KEYS, OWN_HEAD_SIZE, SCALED, WINDOWS, SOME_WINDOWS})
_GPT = frozenset({LAYER_NORM, GELU, ALL_BIASES})

LLAMA = HuggingFaceArchitecture(
    "LlamaForCausalLM",
    "llama",
    frozenset({*_COMMON, ALL_BIASES}),
    settings=lambda m: {"attention_bias": m.biases == "all", "mlp_bias": m.biases == "all"},
)
CLASSES: tuple[HuggingFaceArchitecture, ...] = (
    LLAMA,
    HuggingFaceArchitecture(
        "MistralForCausalLM",
        "mistral",
        frozenset(_COMMON),
        frozenset({WINDOWS}),
        lambda m: {"sliding_window": m.sliding_window},
    ),
    HuggingFaceArchitecture(
        "MinistralForCausalLM", "ministral", frozenset(_COMMON), frozenset({SOME_WINDOWS}), _windows
    ),
    HuggingFaceArchitecture(
        "Qwen2ForCausalLM",
        "qwen2",
        frozenset({*_COMMON, WINDOWS, SOME_WINDOWS}),
        frozenset({QKV_BIASES}),
        _windows,
    ),
    HuggingFaceArchitecture(
        "Qwen3ForCausalLM",
        "qwen3",
        frozenset({*_COMMON, WINDOWS, SOME_WINDOWS}),
        frozenset({HEAD_NORMS}),
        lambda m: _windows(m) | {"attention_bias": False},
    ),
    HuggingFaceArchitecture(
        "GemmaForCausalLM",
        "gemma",
        frozenset({SHARED_KEYS, OWN_HEAD_SIZE, SCALED}),
        frozenset({GEGLU, ROOT_OF_WIDTH}),
        lambda m: {"attention_bias": False},
        norm_offset=1.0,
    ),
    HuggingFaceArchitecture(
        "VaultGemmaForCausalLM",
        "vaultgemma",
        _GEMMA_2,
        frozenset({GEGLU, ROOT_OF_WIDTH, SOFT_CAPS}),
        _gemma_2,
        norm_offset=1.0,
    ),
    HuggingFaceArchitecture(
        "Gemma2ForCausalLM",
        "gemma2",
        _GEMMA_2 | {SOFT_CAPS},
        frozenset({GEGLU, ROOT_OF_WIDTH, POST_NORMS}),
        _gemma_2,
        norm_offset=1.0,
    ),
    HuggingFaceArchitecture(
        "Gemma3ForCausalLM",
        "gemma3_text",
        _GEMMA_2,
        frozenset({GEGLU, ROOT_OF_WIDTH, POST_NORMS, HEAD_NORMS}),
        _gemma_3,
        norm_offset=1.0,
    ),
    HuggingFaceArchitecture(
        "GraniteForCausalLM",
        "granite",
        frozenset({*_COMMON, ALL_BIASES, ROOT_OF_WIDTH, MULTIPLIERS}),
        settings=lambda m: {
            "embedding_multiplier": m.embedding_multiplier,
            "residual_multiplier": m.residual_multiplier,
            "attention_multiplier": m.attention_scale,
            **LLAMA.settings(m),
        },
    ),
    HuggingFaceArchitecture(
        "SmolLM3ForCausalLM",
        "smollm3",
        frozenset({*_COMMON, ALL_BIASES, WINDOWS, SOME_WINDOWS, SOME_ROTARY, NO_POSITIONS}),
        settings=lambda m: {
            "no_rope_layers": m.no_rope_layers,
            "pad_token_id": None,  # the default is outside of small vocabularies
            **_windows(m),
            **LLAMA.settings(m),
        },
    ),
    HuggingFaceArchitecture(
        "StableLmForCausalLM",
        "stablelm",
        frozenset({SHARED_KEYS, GEGLU, SCALED, PARTIAL, PARALLEL, QKV_BIASES}),
        frozenset({LAYER_NORM}),
        lambda m: {
            "layer_norm_eps": m.norm_epsilon,
            "use_qkv_bias": m.biases == "query_key_value",
            "use_parallel_residual": m.block == "parallel",
        },
    ),
    HuggingFaceArchitecture(
        "CohereForCausalLM",
        "cohere",
        frozenset(_COMMON),
        frozenset({LAYER_NORM_WITHOUT_BIAS, PARALLEL}),
        lambda m: {"layer_norm_eps": m.norm_epsilon, "logit_scale": 1.0},
    ),
    HuggingFaceArchitecture(
        "Starcoder2ForCausalLM",
        "starcoder2",
        frozenset({SHARED_KEYS, OWN_HEAD_SIZE, SCALED, WINDOWS, ALL_BIASES}),
        frozenset({LAYER_NORM, GELU}),
        lambda m: {
            "norm_epsilon": m.norm_epsilon,
            "use_bias": m.biases == "all",
            "sliding_window": m.sliding_window,
        },
    ),
    HuggingFaceArchitecture(
        "GPTNeoXForCausalLM",
        "gpt_neox",
        frozenset({SCALED, PARTIAL, PARALLEL}),
        _GPT,
        lambda m: {
            "layer_norm_eps": m.norm_epsilon,
            "use_parallel_residual": m.block == "parallel",
            "attention_bias": True,
        },
    ),
    HuggingFaceArchitecture(
        "PhiForCausalLM",
        "phi",
        frozenset({SHARED_KEYS, OWN_HEAD_SIZE, SCALED, PARTIAL}),
        _GPT | {PARALLEL},
        lambda m: {"layer_norm_eps": m.norm_epsilon},
    ),
    HuggingFaceArchitecture(
        "GPT2LMHeadModel",
        "gpt2",
        always_has=_GPT | {LEARNED},
        settings=lambda m: {
            "n_inner": m.feed_forward_width,
            "activation_function": "gelu_pytorch_tanh",
            "layer_norm_epsilon": m.norm_epsilon,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        },
    ),
)
"""A model is exported as the first class that computes it."""

_SUPPORTED = [each.can_have | each.always_has for each in CLASSES]


def class_of(model: ModelSpec) -> HuggingFaceArchitecture | str:
    """The class that computes ``model``, if its attention is full; or why there is none."""
    options = options_of(model)
    return next((each for each in CLASSES if each.computes(options)), None) or _reason(options)


def _reason(options: Options) -> str:
    """The fewest options that no class has together, or what the nearest class has besides."""
    for count in range(1, len(options) + 1):
        for some in combinations(sorted(options), count):
            wanted = frozenset(some)
            if not any(wanted <= supported for supported in _SUPPORTED):
                return f"no class has {_together(some)}"
    near = [each for each, supported in zip(CLASSES, _SUPPORTED, strict=True) if options <= supported]
    lacking = min((sorted(each.always_has - options) for each in near), key=len)
    return f"a class with {_together(sorted(options))} also has {_together(lacking)}"


def _together(options: tuple[str, ...] | list[str]) -> str:
    first, *rest = options
    return first if not rest else f"{', '.join([first, *rest[:-1]])} together with {rest[-1]}"
