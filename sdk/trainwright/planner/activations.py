"""Bytes that a block keeps between its forward and its backward pass, by what is computed and how, in closed form.

    D width   Q heads · head size   G kv heads · head size   H heads   F hidden   t tensor degree   e bytes a number

All figures are for one token of a micro batch on one rank. In bfloat16, computed operation by operation, a block keeps

    2 norms              2 · (4 D + 4 D + 4) / t     input and normed input in float32, and the root
    inputs of products   2 · e D                     gathered from the tensor group's ranks, and therefore whole
    attention            e (2 Q + 2 G) / t + 4 H / t queries, keys, values and what they give; a logarithm a head
    gate                 4 · e F / t                 gate, up, silu(gate), their product

which is Korthikanti et al. 2022 (their table 2) for this network: RMSNorm instead of LayerNorm, SwiGLU instead of GELU,
fused attention, no dropout. Compiled blocks keep less: norms give up their float32 copies, the gate its silu. In FP8 the
inputs of products are kept as one byte each. ``selective`` keeps the block's input and what products and attention give,
``full`` the block's input alone (``trainwright_trainer.model.recompute``).

Autocast casts weights for each forward pass and keeps the casts until its backward pass: 2 bytes a weight of the block for
every micro batch in flight. That is no activation, and counted apart.

Only tensors are counted: what allocators and kernels need beside them is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.training_spec import RecomputeKind


@dataclass(frozen=True)
class Form:
    """How a block is computed."""

    precision: PrecisionKind
    """FP8 where the block's products are; bfloat16 for a block of an FP8 run that is kept high."""

    compiled: bool = False
    recompute: RecomputeKind = RecomputeKind.NONE
    tensor: int = 1

    @property
    def number_bytes(self) -> int:
        """Bytes of a number between operations."""
        return 4 if self.precision is PrecisionKind.FP32 else 2


@dataclass(frozen=True)
class Kept:
    """Bytes of a token, on one rank."""

    gathered: float
    """Inputs of products, which a tensor group's ranks hold whole."""

    rest: float

    @property
    def total(self) -> float:
        return self.gathered + self.rest


def block_bytes(model: ModelSpec, form: Form) -> Kept:
    """What a block keeps of a token until its backward pass."""
    stream = form.number_bytes * model.width / form.tensor
    if form.recompute is RecomputeKind.FULL:
        return Kept(0.0, stream)
    if form.recompute is RecomputeKind.SELECTIVE:
        return Kept(0.0, stream + _products(model, form))
    return Kept(_inputs(model, form), _norms(model, form) + _attention(model, form) + _gate(model, form))


def again_bytes(model: ModelSpec, form: Form) -> float:
    """What a block that is computed again needs of a token for that time, beside what it has kept."""
    if form.recompute is RecomputeKind.NONE:
        return 0.0
    plain = Form(form.precision, form.compiled, RecomputeKind.NONE, form.tensor)
    return max(0.0, block_bytes(model, plain).total - block_bytes(model, form).total)


def deferred_bytes(model: ModelSpec, form: Form) -> float:
    """What is kept of a token from the gradient of a block's input to those of its weights: both factors of each product."""
    queries, keys = _widths(model)
    own = (2 * queries + 2 * keys + 3 * model.hidden) / form.tensor
    size = 1 if form.precision is PrecisionKind.FP8 else form.number_bytes
    return size * (own + 4 * model.width)


def cast_bytes_per_weight(form: Form) -> int:
    """Of a weight of the block's matrices, for each micro batch between its passes."""
    casts = form.precision is PrecisionKind.BF16 and form.recompute is RecomputeKind.NONE
    return 2 if casts else 0


def _norms(model: ModelSpec, form: Form) -> float:
    kept = form.number_bytes * model.width if form.compiled else 8 * model.width
    return 2 * (kept + 4) / form.tensor


def _inputs(model: ModelSpec, form: Form) -> float:
    """Compiled casts to FP8 are one for each product; computed one by one, they are shared."""
    if form.precision is PrecisionKind.FP8:
        return (5 if form.compiled else 2) * model.width
    return 2 * form.number_bytes * model.width


def _attention(model: ModelSpec, form: Form) -> float:
    queries, keys = _widths(model)
    codes = queries if form.precision is PrecisionKind.FP8 else 0
    return (form.number_bytes * (2 * queries + 2 * keys) + 4 * model.heads + codes) / form.tensor


def _gate(model: ModelSpec, form: Form) -> float:
    before = 2 if form.compiled else 3
    product = 1 if form.precision is PrecisionKind.FP8 else form.number_bytes
    return (form.number_bytes * before + product) * model.hidden / form.tensor


def _products(model: ModelSpec, form: Form) -> float:
    """What products and attention give; outputs before they are summed over the tensor group are whole."""
    queries, keys = _widths(model)
    cut = form.number_bytes * (2 * queries + 2 * keys + 2 * model.hidden) + 4 * model.heads
    return cut / form.tensor + 2 * form.number_bytes * model.width


def _widths(model: ModelSpec) -> tuple[int, int]:
    """Features of queries and of keys."""
    return model.heads * model.features_per_head, model.key_value_heads * model.features_per_head
