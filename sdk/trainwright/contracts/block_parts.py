"""The parts of a transformer block, and their properties for trainer and planner, declared once.

The trainer shards, initializes, casts and exports weights according to these declarations. The planner derives from
them the number of weights, FLOPs, and the memory of weights and activations. Attention is in ``attention_parts``.

    D width   F hidden   T tokens of a sequence
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from trainwright.contracts.attention_parts import ATTENTIONS, AttentionPart
from trainwright.contracts.block_weight import BlockWeight, bias_weight
from trainwright.contracts.model_spec import ModelSpec

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
        bias_weight(lambda m: m.feed_forward_width, "mlp.gate_proj.bias", shard_dim=0),
        present=lambda m: m.is_gated and m.biases == "all",
    ),
    "up.weight": BlockWeight(
        lambda m: (m.feed_forward_width, m.width), "mlp.up_proj.weight", 0, is_linear=True, reads_input=True
    ),
    "up_bias.weight": bias_weight(lambda m: m.feed_forward_width, "mlp.up_proj.bias", "all", shard_dim=0),
    "down.weight": BlockWeight(
        lambda m: (m.width, m.feed_forward_width),
        "mlp.down_proj.weight",
        1,
        is_linear=True,
        adds_to_residual=True,
    ),
}


def _norm(
    name: str, exported_as: str, present: Callable[[ModelSpec], bool] = lambda m: True
) -> dict[str, BlockWeight]:
    shift = BlockWeight(
        lambda m: (m.width,),
        f"{exported_as}.bias",
        is_bias=True,
        present=lambda m: m.norm == "layer" and present(m),
    )
    return {
        f"{name}.weight": BlockWeight(lambda m: (m.width,), f"{exported_as}.weight", present=present),
        f"{name}.shift.weight": shift,
    }


NORMS: dict[str, dict[str, BlockWeight]] = {
    "serial": _norm("attention_norm", "input_layernorm")
    | _norm("feed_forward_norm", "post_attention_layernorm")
    | _norm("attention_post_norm", "post_self_attn_layernorm", lambda m: m.post_norms)
    | _norm("feed_forward_post_norm", "post_mlp_layernorm", lambda m: m.post_norms),
    "parallel": _norm("norm", "input_layernorm"),
}
"""Norms of a block by its name in ``ModelSpec.block``: each of its parts has a norm, or both read the output of one."""

OUTPUT_BIASES: dict[str, dict[str, BlockWeight]] = {
    "serial": {
        "attention_bias.weight": bias_weight(lambda m: m.width, "self_attn.o_proj.bias", "all"),
        "feed_forward_bias.weight": bias_weight(lambda m: m.width, "mlp.down_proj.bias", "all"),
    },
    "parallel": {"bias.weight": bias_weight(lambda m: m.width, "bias", "all")},
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
    """Norms of a block whose output linear layers read."""
    return 1 if model.block == "parallel" else 2


def post_norm_count(model: ModelSpec) -> int:
    """Norms of a block whose output is added to the residual stream."""
    return 2 if model.post_norms else 0


def last_norm_size(model: ModelSpec) -> int:
    """Elements of the norm after the last block."""
    return model.width * (2 if model.norm == "layer" else 1)


def position_table_size(model: ModelSpec, sequence_tokens: int) -> int:
    """Elements of the table of learned positions."""
    return sequence_tokens * model.width if model.positions == "learned" else 0


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
