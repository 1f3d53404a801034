"""The variants of attention, and what each declares for trainer and planner, once.

A new variant touches three files, or four:

    here                                the name, the sentence that users read, and an entry in ``ATTENTIONS``
    trainwright_trainer.model           its module, in a separate file, and a line of ``attention_registry``
    trainwright_trainer.checkpoint      its computation in ``plain_model``, if no class of `transformers` reads its exports

Its own settings are fields of ``ModelSpec``, which refuses them for other variants. Parameters, FLOPs, memory, shards,
FP8 layers, initial values, refusals and names in exports follow from what it declares. A weight of the same name is the same in
all variants.

    D width   Q heads · head size   G kv heads · head size   H heads   T tokens of a sequence
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from trainwright.contracts.block_weight import BlockWeight, bias_weight
from trainwright.contracts.hugging_face import HuggingFaceArchitecture, class_of
from trainwright.contracts.refused_combination import RefusedCombination

if TYPE_CHECKING:  # ``model_spec`` itself imports the names of ``ATTENTIONS``
    from trainwright.contracts.model_spec import ModelSpec

AttentionKind = Annotated[
    Literal["full", "localized_filtering"],
    Field(
        description="What queries and keys are computed from: `full`, the input of the block; `localized_filtering` "
        "(Yuan 2.0), that input after two convolutions, which mix each token with the two before it."
    ),
]
"""The names of ``ATTENTIONS`` in ``ModelSpec.attention``."""


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

    excludes: tuple[RefusedCombination, ...] = ()
    """Choices that it excludes. ``choice`` completes "attention … with"."""

    unsharded_inputs: Callable[[ModelSpec], int] = lambda m: 0
    """Values per token of inputs of its linear layers, other than its own input, that each tensor rank has in full.
    They are saved in the dtype of activations, in FP8 runs as codes."""

    unsharded_float32: Callable[[ModelSpec], int] = lambda m: 0
    """Values per token that are saved in float32, in full on each tensor rank."""

    stored_scores: int = 0
    """Number of float32 values that it stores for each query head and pair of positions; 0 if a kernel computes attention."""

    width_divisor: int | None = None
    """Tensor ranks split width ÷ this. None: none of its weights splits the width."""

    hugging_face: Callable[[ModelSpec], HuggingFaceArchitecture | str] = class_of
    """The class of `transformers` that computes the same, or why there is none; then ``plain_model`` computes it."""


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
    "query_bias.weight": bias_weight(lambda m: m.query_features, "self_attn.q_proj.bias", *_QKV, shard_dim=0),
    "key_bias.weight": bias_weight(lambda m: m.key_features, "self_attn.k_proj.bias", *_QKV, shard_dim=0),
    "value_bias.weight": bias_weight(lambda m: m.key_features, "self_attn.v_proj.bias", *_QKV, shard_dim=0),
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
    width_divisor=2,
    excludes=(
        RefusedCombination(
            "an odd width ÷ heads",
            "model.width",
            lambda s: s.model.width // s.model.heads % 2 == 1,
            lambda s: s.model.width,
            "÷ heads must be even: tensor ranks split half of it in the convolutions",
        ),
        RefusedCombination(
            "model.block parallel",
            "model.block",
            lambda s: s.model.block == "parallel",
            lambda s: s.model.block,
            "needs one input for attention and feed-forward network, but localized filtering changes the input of "
            "attention: use serial",
        ),
        RefusedCombination(
            "tensor_chunks > 1",
            "parallelism.tensor_chunks",
            lambda s: s.parallelism.tensor_chunks > 1,
            lambda s: s.parallelism.tensor_chunks,
            "sends tokens in parts, but localized filtering needs all tokens of a sequence at once: use 1",
        ),
    ),
    hugging_face=lambda m: "no class has localized filtering attention",
)

ATTENTIONS: dict[str, AttentionPart] = {"full": _FULL, "localized_filtering": _LOCALIZED_FILTERING}
"""The variants by their name in ``ModelSpec.attention``."""
