"""How each class of `transformers` stores the weights of a model: under which names, joined, transposed, or twice.

Most classes have Llama's layout, in which each of our weights has another name. Others differ:

    GPT-2       matrices of blocks are transposed; query, key and value are one matrix
    GPT-NeoX    query, key and value are one matrix, head by head; a parallel block has the weights of its one norm twice
    GPT-NeoX,   a parallel block has a bias for each of its parts: ours is that of attention, and the other is zero
    Phi         the head of Phi has a bias, which is zero
    Cohere      rotary positions rotate neighboring features of a head; ours are half a head apart

Every stored tensor can be split into our weights again, so our own code loads exports of any class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from trainwright.contracts.block_parts import weight_in_block
from trainwright.contracts.export_architecture import PLAIN
from trainwright.contracts.hugging_face import HuggingFaceArchitecture
from trainwright.contracts.model_spec import ModelSpec

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of an export."""

    sources: tuple[str, ...]
    """Our weights that it contains, by canonical name; none if it is zero."""

    shape: tuple[int, ...]
    join: Callable[[Sequence[Tensor]], Tensor] = lambda parts: parts[0]
    split: Callable[[Tensor], Sequence[Tensor]] = lambda whole: [whole]


def stored_tensors(
    theirs: HuggingFaceArchitecture, model: ModelSpec, shapes: Shapes
) -> dict[str, StoredTensor]:
    """The tensors of an export of ``model`` by name, in the order of our weights.

    Args:
        shapes: of our weights, by canonical name.
    """
    if theirs == PLAIN:
        return {name: StoredTensor((name,), shape) for name, shape in shapes.items()}
    layout = _LAYOUTS.get(theirs.model_type, _LLAMA)
    grouped: dict[str, list[str]] = {}
    for name in shapes:
        grouped.setdefault(layout.name_of(name), []).append(name)
    found = {
        name: _stored(layout, model, sources, [shapes[source] for source in sources])
        for name, sources in grouped.items()
    }
    if model.block == "parallel":
        found |= dict(_of_parallel_blocks(layout, model, found))
    return found | {name: StoredTensor((), shapes[like][:1]) for name, like in layout.zeros.items()}


def name_in_llama(name: str) -> str:
    """The name of one of our weights in Llama's layout."""
    return _LLAMA.name_of(name)


@dataclass(frozen=True)
class _Layout:
    layer: str = "model.layers"
    outer: dict[str, str] = field(default_factory=dict)
    """Their names of modules outside of blocks."""

    inner: Mapping[str, str] = field(default_factory=dict)
    """Their names of modules in a block, by Llama's; several of ours may have one."""

    is_transposed: bool = False
    fuses_by_head: bool = False
    rotates_neighbors: bool = False
    second_norm: str | None = None
    """The norm of a parallel block that repeats the first one."""

    second_bias: str | None = None
    """The bias of a parallel block that is zero."""

    zeros: Mapping[str, str] = field(default_factory=dict)
    """Tensors that are zero, each with one of our matrices that has as many rows."""

    def name_of(self, name: str) -> str:
        """Their name of one of our weights."""
        weight = weight_in_block(name)
        if weight is None:
            module, _, kind = name.replace(".shift.weight", ".bias").rpartition(".")
            return f"{(_OUTER | self.outer)[module]}.{kind}"
        module, _, kind = weight.exported_as.rpartition(".")
        return f"{self.layer}.{name.split('.')[1]}.{self.inner.get(module, module)}.{kind}"


_OUTER = {"embedding": "model.embed_tokens", "norm": "model.norm", "head": "lm_head"}
_QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")

_ROTATED = ("self_attn.q_proj.weight", "self_attn.k_proj.weight")

_LLAMA = _Layout()
_WITH_POST_NORMS = _Layout(
    inner={
        "post_attention_layernorm": "pre_feedforward_layernorm",
        "post_self_attn_layernorm": "post_attention_layernorm",
        "post_mlp_layernorm": "post_feedforward_layernorm",
    }
)
_LAYOUTS = {
    "starcoder2": _Layout(inner={"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}),
    "phi": _Layout(
        outer={"norm": "model.final_layernorm"},
        inner={
            "self_attn.o_proj": "self_attn.dense",
            "": "self_attn.dense",
            "mlp.up_proj": "mlp.fc1",
            "mlp.down_proj": "mlp.fc2",
        },
        second_bias="mlp.fc2",
        zeros={"lm_head.bias": "embedding.weight"},
    ),
    "gpt_neox": _Layout(
        "gpt_neox.layers",
        {"embedding": "gpt_neox.embed_in", "norm": "gpt_neox.final_layer_norm", "head": "lm_head"},
        {
            **dict.fromkeys(_QKV, "attention.query_key_value"),
            "self_attn.o_proj": "attention.dense",
            "": "attention.dense",
            "mlp.up_proj": "mlp.dense_h_to_4h",
            "mlp.down_proj": "mlp.dense_4h_to_h",
        },
        fuses_by_head=True,
        second_norm="post_attention_layernorm",
        second_bias="mlp.dense_4h_to_h",
    ),
    "gpt2": _Layout(
        "transformer.h",
        {
            "embedding": "transformer.wte",
            "position_embedding": "transformer.wpe",
            "norm": "transformer.ln_f",
            "head": "lm_head",
        },
        {
            **dict.fromkeys(_QKV, "attn.c_attn"),
            "self_attn.o_proj": "attn.c_proj",
            "mlp.up_proj": "mlp.c_fc",
            "mlp.down_proj": "mlp.c_proj",
            "input_layernorm": "ln_1",
            "post_attention_layernorm": "ln_2",
        },
        is_transposed=True,
    ),
    "vaultgemma": _Layout(inner={"post_attention_layernorm": "pre_feedforward_layernorm"}),
    "cohere": _Layout(rotates_neighbors=True),
    "gemma2": _WITH_POST_NORMS,
    "gemma3_text": _WITH_POST_NORMS,
}


def _stored(
    layout: _Layout, model: ModelSpec, sources: Sequence[str], shapes: Sequence[tuple[int, ...]]
) -> StoredTensor:
    rows, rest = [shape[0] for shape in shapes], shapes[0][1:]
    shape = (sum(rows), *rest)
    if len(sources) > 1 and layout.fuses_by_head:
        return StoredTensor(
            tuple(sources),
            shape,
            partial(_join_heads, heads=model.heads),
            partial(_split_heads, heads=model.heads),
        )
    if layout.is_transposed and rest and weight_in_block(sources[0]) is not None:
        return StoredTensor(
            tuple(sources),
            shape[::-1],
            lambda parts: torch.cat(list(parts)).t().contiguous(),
            lambda whole: whole.t().split(rows),
        )
    weight = weight_in_block(sources[0])
    if layout.rotates_neighbors and weight is not None and weight.exported_as in _ROTATED:
        heads = shape[0] // model.features_per_head
        return StoredTensor(
            tuple(sources),
            shape,
            partial(_bring_pairs_together, heads=heads),
            partial(_take_pairs_apart, heads=heads),
        )
    return StoredTensor(tuple(sources), shape, _join_rows, lambda whole: whole.split(rows))


def _join_rows(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _join_heads(parts: Sequence[Tensor], heads: int) -> Tensor:
    """Query, key and value of the first head, then those of the second one, and so on."""
    return torch.stack([part.unflatten(0, (heads, -1)) for part in parts], 1).flatten(0, 2)


def _split_heads(whole: Tensor, heads: int) -> Sequence[Tensor]:
    return [part.flatten(0, 1) for part in whole.unflatten(0, (heads, 3, -1)).unbind(1)]


def _bring_pairs_together(parts: Sequence[Tensor], heads: int) -> Tensor:
    """Feature i of each head is followed by the one that it is rotated with, half a head away."""
    halves: Tensor = parts[0].unflatten(0, (heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)


def _take_pairs_apart(whole: Tensor, heads: int) -> Sequence[Tensor]:
    return [whole.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)]


def _of_parallel_blocks(
    layout: _Layout, model: ModelSpec, found: Mapping[str, StoredTensor]
) -> Iterator[tuple[str, StoredTensor]]:
    """What two parts of a block have separately in their layout, and together in ours."""
    for layer in range(model.layers):
        path = f"{layout.layer}.{layer}"
        if layout.second_norm is not None:
            for kind in ("weight", "bias"):
                yield f"{path}.{layout.second_norm}.{kind}", found[f"{path}.input_layernorm.{kind}"]
        if layout.second_bias is not None:
            yield f"{path}.{layout.second_bias}.bias", StoredTensor((), (model.width,))
