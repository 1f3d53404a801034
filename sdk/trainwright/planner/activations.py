"""Bytes that a block stores between its forward and backward pass, in closed form.

    D width   Q heads · head size   G kv heads · head size   H heads   F hidden   t tensor degree   e bytes per value

All figures are for one token of a micro batch on one rank. In bfloat16, without compilation, a block stores

    2 norms              2 · (4 D + 4 D + 4) / t     input and normalized input in float32, and the root
    inputs of matmuls   2 · e D                     gathered from all ranks of the tensor group
    attention            e (2 Q + 2 G) / t + 4 H / t queries, keys, values and result; a logarithm per head
    gate                 4 · e F / t                 gate, up, silu(gate), their product; without a gate 2 · e F / t

as in table 2 of Korthikanti et al. 2022, adapted to this network: RMSNorm instead of LayerNorm, SwiGLU instead of GELU, fused
attention, no dropout. A parallel block has one norm, and all its matmuls but the last two read the same input. Compiled
blocks store less: norms without float32 copies, the gate without silu. In FP8 the inputs of matmuls take one byte each;
compiled FP8 blocks store only those of the normed input, and cast the others again from bfloat16 values that are stored anyway.
``selective`` stores the input of the block and the results of matmuls and attention, ``full`` only the input of the block
(``trainwright_trainer.model.recompute``).

Autocast casts weights for each forward pass and stores the casts until the backward pass: 2 bytes per weight of the block for
each micro batch in flight. These are not activations, and are counted separately.

Only tensors are counted, not the memory of allocators and kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.contracts.block_parts import (
    attention_of,
    attention_weights,
    feed_forward_weights,
    norm_count,
    post_norm_count,
)
from trainwright.contracts.block_weight import BlockWeight
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.training_spec import RecomputeKind


@dataclass(frozen=True)
class BlockMode:
    """How a block is computed."""

    precision: PrecisionKind
    """Precision of the block's matmuls: bfloat16 for the blocks of an FP8 run that are not in FP8."""

    compiled: bool = False
    recompute: RecomputeKind = RecomputeKind.NONE
    tensor: int = 1

    @property
    def value_bytes(self) -> int:
        """Bytes per value between operations."""
        return 4 if self.precision is PrecisionKind.FP32 else 2


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes per token on one rank."""

    gathered: float
    """Inputs of matmuls, gathered from all ranks of the tensor group."""

    rest: float

    @property
    def total(self) -> float:
        return self.gathered + self.rest


def activation_bytes(model: ModelSpec, mode: BlockMode) -> ActivationBytes:
    """Bytes per token that a block stores until its backward pass."""
    stream = mode.value_bytes * model.width / mode.tensor
    if mode.recompute is RecomputeKind.FULL:
        return ActivationBytes(0.0, stream)
    if mode.recompute is RecomputeKind.SELECTIVE:
        return ActivationBytes(0.0, stream + _matmuls(model, mode))
    return ActivationBytes(
        _inputs(model, mode), _norms(model, mode) + _attention(model, mode) + _gate(model, mode)
    )


def recompute_bytes(model: ModelSpec, mode: BlockMode) -> float:
    """Additional bytes per token while a block is recomputed."""
    if mode.recompute is RecomputeKind.NONE:
        return 0.0
    plain = BlockMode(mode.precision, mode.compiled, RecomputeKind.NONE, mode.tensor)
    return max(0.0, activation_bytes(model, plain).total - activation_bytes(model, mode).total)


def deferred_bytes(model: ModelSpec, mode: BlockMode) -> float:
    """Bytes per token between input gradient and weight gradients of a block: both factors of each matmul."""
    size = 1 if mode.precision is PrecisionKind.FP8 else mode.value_bytes
    attention, feed_forward = (
        list(attention_weights(model).values()),
        list(feed_forward_weights(model).values()),
    )
    parts = [attention + feed_forward] if norm_count(model) == 1 else [attention, feed_forward]
    return size * sum(_factors(part, model, mode) for part in parts)


def cast_bytes_per_weight(mode: BlockMode) -> int:
    """Bytes of casts per weight of the block's matrices, for each micro batch in flight."""
    casts = mode.precision is PrecisionKind.BF16 and mode.recompute is RecomputeKind.NONE
    return 2 if casts else 0


def _norms(model: ModelSpec, mode: BlockMode) -> float:
    is_fused = mode.compiled or model.norm != "rms"  # torch has a kernel for LayerNorm in mixed precision
    kept = mode.value_bytes * model.width if is_fused else 8 * model.width
    scalars = 4 if model.norm == "rms" else 8  # the root; LayerNorm's mean too
    return (norm_count(model) + post_norm_count(model)) * (kept + scalars) / mode.tensor


def _inputs(model: ModelSpec, mode: BlockMode) -> float:
    """Matmuls that read the same input share it, and in FP8 its cast."""
    size = 1 if mode.precision is PrecisionKind.FP8 else mode.value_bytes
    return norm_count(model) * size * model.width


def _attention(model: ModelSpec, mode: BlockMode) -> float:
    attention = attention_of(model)
    in_fp8 = mode.precision is PrecisionKind.FP8
    codes = _inner_inputs(attention_weights(model).values(), model) if in_fp8 and not mode.compiled else 0
    saved = mode.value_bytes * attention.saved_values(model) + 4 * attention.saved_float32(model)
    unsharded = (1 if in_fp8 else mode.value_bytes) * attention.unsharded_inputs(model)
    saved += _head_norms(model, mode)
    return (saved + codes) / mode.tensor + unsharded + 4 * attention.unsharded_float32(model)


def _head_norms(model: ModelSpec, mode: BlockMode) -> int:
    """Bytes per token of the norms of queries and keys: as for the norms of the stream, and a root for each head."""
    if not model.qk_norm:
        return 0
    size = mode.value_bytes if mode.compiled else 8
    return size * (model.query_features + model.key_features) + 4 * (model.heads + model.key_value_heads)


def _gate(model: ModelSpec, mode: BlockMode) -> float:
    before = 1 if not model.is_gated else 2 if mode.compiled else 3
    in_fp8 = mode.precision is PrecisionKind.FP8
    matmul = (0 if mode.compiled else 1) if in_fp8 else mode.value_bytes
    return (mode.value_bytes * before + matmul) * model.feed_forward_width / mode.tensor


def _matmuls(model: ModelSpec, mode: BlockMode) -> float:
    """Results of matmuls and attention. Outputs before the reduction over the tensor group are not sharded."""
    attention = attention_of(model)
    cut = mode.value_bytes * (
        attention.selective_values(model) + _first_layers(model) * model.feed_forward_width
    )
    cut += 4 * attention.saved_float32(model)
    return cut / mode.tensor + 2 * mode.value_bytes * model.width


def _factors(weights: Sequence[BlockWeight], model: ModelSpec, mode: BlockMode) -> float:
    """Values per token that the weight gradients of linear layers need: the gradient of each output, one copy of the
    input that several layers read, and other inputs. Values with a sharded dim are sharded too.
    """
    linear = [weight for weight in weights if weight.is_linear]
    total = 0.0
    for number, weight in enumerate(linear):
        for dim, features in enumerate(weight.shape(model)):
            shared = dim == 1 and weight.reads_input and any(before.reads_input for before in linear[:number])
            if not shared:
                total += features / (mode.tensor if dim == weight.shard_dim else 1)
    return total


def _inner_inputs(weights: Iterable[BlockWeight], model: ModelSpec) -> int:
    """Features of inputs of linear layers that tensor ranks split."""
    return sum(weight.shape(model)[1] for weight in weights if weight.is_linear and weight.shard_dim == 1)


def _first_layers(model: ModelSpec) -> int:
    """Layers of the feed-forward network that read its input."""
    return 2 if model.is_gated else 1
