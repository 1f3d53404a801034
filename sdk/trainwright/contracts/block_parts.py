"""The parts of a transformer block, and their properties for trainer and planner, declared once.

The trainer shards, initializes, casts and exports weights according to these declarations. The planner derives from
them the number of weights, FLOPs, and the memory of weights and activations. A new variant of attention touches four
files:

    contracts.model_spec           its name in ``ModelSpec.attention``, and its settings if it has any
    here                           its entry in ``ATTENTIONS``
    trainwright_trainer.model      its module, in a separate file, and a line of ``attention_registry``

A weight of the same name is the same in all variants.

    D width   Q heads · head size   G kv heads · head size   H heads   F hidden   T tokens of a sequence
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from trainwright.contracts.combination import Combination
from trainwright.contracts.model_spec import ModelSpec


@dataclass(frozen=True)
class BlockWeight:
    """One weight of a block."""

    shape: Callable[[ModelSpec], tuple[int, ...]]
    exported_as: str
    """Its name below a layer in Hugging Face's layout."""

    shard_dim: int | None = None
    """The dim that tensor ranks split. None: each rank has the entire weight, and they sum its gradients, because each
    computes some of the heads or of the tokens."""

    is_linear: bool = False
    """Whether it is the matrix (features out, features in) of a linear layer: FP8 runs cast it."""

    reads_input: bool = False
    """Whether it multiplies the input of its part, whose cast in FP8 all weights that read it share."""

    adds_to_residual: bool = False
    """Whether its product is added to the residual stream: its initial values are smaller (GPT-2)."""

    is_bias: bool = False
    """Whether its initial values are 0; those of other vectors are 1."""

    present: Callable[[ModelSpec], bool] = lambda m: True
    """Whether a model has it."""

    def size(self, model: ModelSpec) -> int:
        """Elements."""
        return math.prod(self.shape(model))


@dataclass(frozen=True)
class HuggingFace:
    """The class of `transformers` that reads exports."""

    architecture: str
    model_type: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Fields and properties of ``ModelSpec`` that only this architecture has, by their names in `config.json`."""

    norm_offset: float = 0.0
    """What it adds to the weights of norms."""


LLAMA = HuggingFace("LlamaForCausalLM", "llama")
GEMMA = HuggingFace("GemmaForCausalLM", "gemma", {}, norm_offset=1.0)
GRANITE = HuggingFace(
    "GraniteForCausalLM",
    "granite",
    {
        "embedding_multiplier": "embedding_multiplier",
        "residual_multiplier": "residual_multiplier",
        "attention_multiplier": "attention_scale",
    },
)
QWEN2 = HuggingFace("Qwen2ForCausalLM", "qwen2")
QWEN3 = HuggingFace("Qwen3ForCausalLM", "qwen3")
MISTRAL = HuggingFace("MistralForCausalLM", "mistral", {"sliding_window": "sliding_window"})
MINISTRAL = HuggingFace(
    "MinistralForCausalLM", "ministral", {"sliding_window": "sliding_window", "layer_types": "layer_types"}
)


def has_multipliers(model: ModelSpec) -> bool:
    """Whether embedded tokens, or what is added to the residual stream, are multiplied."""
    return model.embedding_multiplier != 1 or model.residual_multiplier != 1


def _is_gemma(model: ModelSpec) -> bool:
    is_root = math.isclose(model.embedding_multiplier, math.sqrt(model.width), rel_tol=1e-6)
    is_plain = model.residual_multiplier == 1 and model.biases == "none"
    return is_root and is_plain and model.activation == "geglu"


def _llama_like(model: ModelSpec) -> HuggingFace:
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


@dataclass(frozen=True)
class AttentionPart:
    """A variant of attention. Figures of its tokens are those of the entire part, which tensor ranks divide."""

    weights: Mapping[str, BlockWeight]
    """Weights by name within the part, in the order of the forward pass; ``attention_weights`` selects those that a model has."""

    token_flops: Callable[[ModelSpec, float], float]
    """FLOPs per token of the forward pass between its linear layers, for a number of keys per query (``mean_keys``)."""

    saved_values: Callable[[ModelSpec], int]
    """Values per token that are saved for the backward pass, in the dtype of activations: results of its linear layers
    except the last, and results computed from them. Inputs of linear layers count only if they are not among these."""

    saved_float32: Callable[[ModelSpec], int]
    """Values per token that are saved in float32, for any dtype of activations."""

    selective_values: Callable[[ModelSpec], int]
    """``saved_values`` if only results of matmuls and attention are saved (`memory.recompute` `selective`)."""

    excludes: tuple[Combination, ...] = ()
    """Choices that it excludes. ``choice`` completes "attention … with"."""

    unsharded_inputs: Callable[[ModelSpec], int] = lambda m: 0
    """Values per token of inputs of its linear layers, other than its own input, that each tensor rank has in full.
    They are saved in the dtype of activations, in FP8 runs as codes."""

    unsharded_float32: Callable[[ModelSpec], int] = lambda m: 0
    """Values per token that are saved in float32, in full on each tensor rank."""

    hugging_face: Callable[[ModelSpec], HuggingFace | None] = _llama_like
    """None: no class of `transformers` computes the same."""


def _bias(
    features: Callable[[ModelSpec], int], exported_as: str, *kinds: str, shard_dim: int | None = None
) -> BlockWeight:
    """A bias that models with ``biases`` of these kinds have."""
    return BlockWeight(
        lambda m: (features(m),), exported_as, shard_dim, is_bias=True, present=lambda m: m.biases in kinds
    )


_QKV = ("query_key_value", "all")
_GROUPED_QUERY = {
    "query.weight": BlockWeight(
        lambda m: (m.query_features, m.width), "self_attn.q_proj.weight", 0, is_linear=True, reads_input=True
    ),
    "key.weight": BlockWeight(
        lambda m: (m.key_features, m.width), "self_attn.k_proj.weight", 0, is_linear=True, reads_input=True
    ),
    "value.weight": BlockWeight(
        lambda m: (m.key_features, m.width), "self_attn.v_proj.weight", 0, is_linear=True, reads_input=True
    ),
    "query_bias.weight": _bias(lambda m: m.query_features, "self_attn.q_proj.bias", *_QKV, shard_dim=0),
    "key_bias.weight": _bias(lambda m: m.key_features, "self_attn.k_proj.bias", *_QKV, shard_dim=0),
    "value_bias.weight": _bias(lambda m: m.key_features, "self_attn.v_proj.bias", *_QKV, shard_dim=0),
    "query_norm.weight": BlockWeight(
        lambda m: (m.features_per_head,), "self_attn.q_norm.weight", present=lambda m: m.qk_norm
    ),
    "key_norm.weight": BlockWeight(
        lambda m: (m.features_per_head,), "self_attn.k_norm.weight", present=lambda m: m.qk_norm
    ),
    "output.weight": BlockWeight(
        lambda m: (m.width, m.query_features),
        "self_attn.o_proj.weight",
        1,
        is_linear=True,
        adds_to_residual=True,
    ),
}

_FULL = AttentionPart(
    weights=_GROUPED_QUERY,
    token_flops=lambda m, keys: 4 * m.query_features * keys,
    saved_values=lambda m: 2 * m.query_features + 2 * m.key_features,  # queries, result, keys, values
    saved_float32=lambda m: m.heads,  # a logarithm for each head
    selective_values=lambda m: 2 * m.query_features + 2 * m.key_features,
)

_FILTER = {
    "filter.first.weight": BlockWeight(
        lambda m: (m.width // 2, 2 * m.width), "self_attn.filter.first.weight", 0, is_linear=True
    ),
    "filter.first_bias.weight": BlockWeight(
        lambda m: (m.width // 2,), "self_attn.filter.first_bias.weight", 0, is_bias=True
    ),
    "filter.second.weight": BlockWeight(
        lambda m: (m.width, m.width), "self_attn.filter.second.weight", 1, is_linear=True
    ),
    "filter.second_bias.weight": BlockWeight(
        lambda m: (m.width,), "self_attn.filter.second_bias.weight", is_bias=True
    ),
    "filter.norm.weight": BlockWeight(lambda m: (m.width,), "self_attn.filter.norm.weight"),
}

_LOCALIZED_FILTERING = replace(
    _FULL,
    weights=_FILTER | _GROUPED_QUERY,
    saved_values=lambda m: _FULL.saved_values(m) + m.width,  # the input of the second convolution
    selective_values=lambda m: _FULL.selective_values(m) + m.width // 2,
    unsharded_inputs=lambda m: 3 * m.width,  # pairs of tokens; the filtered input
    unsharded_float32=lambda m: 2 * m.width + 1,  # of its norm
    excludes=(
        Combination(
            "tensor_chunks > 1",
            "parallelism.tensor_chunks",
            lambda s: s.parallelism.tensor_chunks > 1,
            lambda s: s.parallelism.tensor_chunks,
            "sends tokens in parts, but localized filtering needs all tokens of a sequence at once: use 1",
        ),
    ),
    hugging_face=lambda m: None,
)

ATTENTIONS: dict[str, AttentionPart] = {"full": _FULL, "localized_filtering": _LOCALIZED_FILTERING}
"""The variants by their name in ``ModelSpec.attention``."""

FEED_FORWARD: dict[str, BlockWeight] = {
    "gate.weight": BlockWeight(
        lambda m: (m.feed_forward_width, m.width),
        "mlp.gate_proj.weight",
        0,
        is_linear=True,
        reads_input=True,
        present=lambda m: m.is_gated,
    ),
    "gate_bias.weight": replace(
        _bias(lambda m: m.feed_forward_width, "mlp.gate_proj.bias", shard_dim=0),
        present=lambda m: m.is_gated and m.biases == "all",
    ),
    "up.weight": BlockWeight(
        lambda m: (m.feed_forward_width, m.width), "mlp.up_proj.weight", 0, is_linear=True, reads_input=True
    ),
    "up_bias.weight": _bias(lambda m: m.feed_forward_width, "mlp.up_proj.bias", "all", shard_dim=0),
    "down.weight": BlockWeight(
        lambda m: (m.width, m.feed_forward_width),
        "mlp.down_proj.weight",
        1,
        is_linear=True,
        adds_to_residual=True,
    ),
}


def _norm(name: str, exported_as: str) -> dict[str, BlockWeight]:
    shift = BlockWeight(
        lambda m: (m.width,), f"{exported_as}.bias", is_bias=True, present=lambda m: m.norm == "layer"
    )
    return {
        f"{name}.weight": BlockWeight(lambda m: (m.width,), f"{exported_as}.weight"),
        f"{name}.shift.weight": shift,
    }


NORMS: dict[str, dict[str, BlockWeight]] = {
    "serial": _norm("attention_norm", "input_layernorm")
    | _norm("feed_forward_norm", "post_attention_layernorm"),
    "parallel": _norm("norm", "input_layernorm"),
}
"""Norms of a block by its name in ``ModelSpec.block``: each of its parts has a norm, or both read the output of one."""

OUTPUT_BIASES: dict[str, dict[str, BlockWeight]] = {
    "serial": {
        "attention_bias.weight": _bias(lambda m: m.width, "self_attn.o_proj.bias", "all"),
        "feed_forward_bias.weight": _bias(lambda m: m.width, "mlp.down_proj.bias", "all"),
    },
    "parallel": {"bias.weight": _bias(lambda m: m.width, "bias", "all")},
}
"""Biases of the last layer of each part, by the block's name in ``ModelSpec.block``. They are added to what tensor ranks have
summed. The parts of a parallel block share one, since both are added to the stream."""


def attention_of(model: ModelSpec) -> AttentionPart:
    """The variant that ``model`` names."""
    return ATTENTIONS[model.attention]


def attention_weights(model: ModelSpec) -> dict[str, BlockWeight]:
    """The weights that ``model`` has in attention."""
    return _present(attention_of(model).weights, model)


def feed_forward_weights(model: ModelSpec) -> dict[str, BlockWeight]:
    """The weights that ``model`` has in the feed-forward network of a block."""
    return _present(FEED_FORWARD, model)


def mixing_flops(model: ModelSpec, layer: int, tokens: int) -> float:
    """FLOPs per token of the forward pass of ``layer`` between the linear layers of its attention."""
    return attention_of(model).token_flops(model, mean_keys(model.window_of_layer(layer), tokens))


def mean_keys(window: int | None, tokens: int) -> float:
    """Keys per query that are counted, in sequences of ``tokens``.

    Without a window, all of them: the half that a causal mask excludes is not subtracted (PaLM, appendix B). In a
    window of w tokens, the mean number of keys of a query: the first query has one key, and from the w-th on each has
    w.
    """
    if window is None or window >= tokens:
        return tokens
    return window - window * (window - 1) / (2 * tokens)


def block_weights(model: ModelSpec) -> dict[str, BlockWeight]:
    """All weights of a block, by name within it."""
    return _present(dict(_named(attention_of(model), model.block)), model)


def norm_count(model: ModelSpec) -> int:
    """Norms of a block. Linear layers read the output of each."""
    return 1 if model.block == "parallel" else 2


def last_norm_size(model: ModelSpec) -> int:
    """Elements of the norm after the last block."""
    return model.width * (2 if model.norm == "layer" else 1)


def is_bias(name: str) -> bool:
    """Whether the initial values of a vector, by its canonical name, are 0."""
    weight = weight_in_block(name)
    return name == "norm.shift.weight" if weight is None else weight.is_bias


def linear_size(model: ModelSpec) -> int:
    """Elements of the matrices of a block's linear layers, by which each token is multiplied."""
    return sum(weight.size(model) for weight in block_weights(model).values() if weight.is_linear)


def weight_in_block(name: str) -> BlockWeight | None:
    """The weight with a name such as `layers.3.attention.query.weight`; None if it is not in a block."""
    first, _, rest = name.partition(".")
    return _ALL[rest.partition(".")[2]] if first == "layers" else None


def _present(weights: Mapping[str, BlockWeight], model: ModelSpec) -> dict[str, BlockWeight]:
    return {name: weight for name, weight in weights.items() if weight.present(model)}


def _named(attention: AttentionPart, block: str) -> Iterator[tuple[str, BlockWeight]]:
    yield from ((f"attention.{name}", weight) for name, weight in attention.weights.items())
    yield from ((f"feed_forward.{name}", weight) for name, weight in FEED_FORWARD.items())
    yield from NORMS[block].items()
    yield from OUTPUT_BIASES[block].items()


_ALL = {
    name: weight
    for attention in ATTENTIONS.values()
    for block in NORMS
    for name, weight in _named(attention, block)
}
