"""Bytes that a rank needs, by component, before a run starts.

    weights        the weights that the optimizer updates, as stored
    copies         other copies of weights: casts for matmuls of micro batches in flight, or of all of a step
                   (``keeps_weight_casts``, ``keeps_weight_operands``), FP8 copies of O3, weights that ZeRO-3 has gathered
    gradients      as stored for the update, and as accumulated in buckets
    optimizer      moments, and master weights if they are separate from the weights
    activations    of micro batches in flight (``activations``, times the micro batches that the schedule stores)
    gathered       inputs of matmuls, gathered from all ranks of a tensor group
    loss           logits of a chunk, and the gradients of features and head that the loss computes at once
    transfers      buffers between stages
    snapshot       on CPUs, the copy of the state that checkpoints are written from, allocated by the first one. For a GPU it is
                   in host memory, and counts there

Bytes per parameter (weights + gradients + optimizer):

    native fp32, bf16   4 + 4 + 8      ZeRO 1, 2, 3 divide the last, the last two, all by the shard degree (Rajbhandari 2020)
                        Muon keeps 4 bytes instead of 8 of matrices in blocks
    FP8 O1              4 + 1 + 8      E4M3 gradients; float32 master weights and moments (FP8-LM, section 3)
    FP8 O2              2 + 1 + 3      float16 master weights, moments in E4M3 and float16; with blocks of 128 both in E4M3
    FP8 O3              O2 ÷ data + 1  the state of each tensor on one rank, an E4M3 copy on all ranks
    DeepSpeed           4 + 4 + 8      everything in float32, for any precision of matmuls. ZeRO 1, 2, 3 add master
                                       weights, 4, sharded like the moments, and a bucket of 2 GB, even for small models

If entire tensors are assigned to ranks (ZeRO 1 and 2, O3), ranks differ, and the figure is for the fullest rank. Only tensors
are counted, not the device context, kernels and fragmentation, which take some GiB on a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from trainwright.contracts.block_parts import (
    attention_of,
    block_weights,
    last_norm_size,
    position_table_size,
)
from trainwright.contracts.block_weight import BlockWeight
from trainwright.contracts.parallelism_spec import Device, EngineKind, OffloadKind
from trainwright.contracts.precision_spec import (
    AccumulationKind,
    FP8Level,
    FP8Spec,
    PrecisionKind,
    ScalingKind,
)
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import RecomputeKind
from trainwright.planner.activations import (
    BlockMode,
    activation_bytes,
    cast_bytes_per_weight,
    deferred_bytes,
    recompute_bytes,
)
from trainwright.planner.pipeline_simulation import Pipeline, in_flight, torch_action_orders

FLEX_HEAD_SIZE = 16
"""Fewest features of a head for which a GPU computes masked attention without a tensor of the mask (FlexAttention)."""

_GRADIENT_BUCKET_BYTES = 25 * 2**20
"""The value in ``trainwright_trainer.parallel.data.gradient_buckets``."""

_FP8_BUCKET_ELEMENTS = 64 * 2**20
"""The value in ``trainwright_trainer.fp8.state.row_layout``."""

_DEEPSPEED_BUCKET_ELEMENTS = 500_000_000
"""DeepSpeed's own ``reduce_bucket_size``."""

_DEEPSPEED_GATHERED_ELEMENTS = 550_000_000
"""Weights that ZeRO 3 has gathered between forward and backward pass, at most the entire model. It frees
weights that are not used again within 10⁹ elements (``max_reuse_distance``), in both passes, and prefetches
5·10⁷ (``prefetch_bucket_size``)."""


class WeightSize(NamedTuple):
    """A weight as the planner sees it."""

    elements: int
    states: int = 0
    """Float32 values that a native float32 optimizer keeps of each element."""


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank at its peak."""

    weights: int = 0
    copies: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    gathered: int = 0
    loss: int = 0
    transfers: int = 0
    snapshot: int = 0
    host: int = 0
    """Host memory, for a device that has its own: what offload keeps there, and the snapshot."""

    @property
    def total(self) -> int:
        """Bytes on the device."""
        parts: list[int] = [getattr(self, field.name) for field in fields(self)]
        return sum(parts) - self.host


@dataclass(frozen=True)
class StageLayers:
    """A stage and its layers."""

    number: int
    layers: range
    first: bool
    last: bool


def stages_of(layers: Sequence[int]) -> list[StageLayers]:
    """Stages with the given numbers of layers."""
    found, begin = [], 0
    for number, count in enumerate(layers):
        last = number == len(layers) - 1
        found.append(StageLayers(number, range(begin, begin + count), number == 0, last))
        begin += count
    return found


def pipeline_of(spec: RunSpec) -> Pipeline:
    """The pipeline of ``spec``, with as many micro batches as affect peak memory."""
    chosen = spec.parallelism
    rounds = spec.accumulation_steps
    enough = 3 * chosen.pipeline
    return Pipeline(chosen.schedule, chosen.pipeline, chosen.local_stages, min(rounds, enough))


def rank_memory(spec: RunSpec, layers: Sequence[int], rank: int, compiled: bool = False) -> RankMemory:
    """Memory of pipeline rank ``rank``, if the stages have ``layers``.

    Args:
        compiled: whether blocks are compiled; see ``compilation``.
    """
    pipeline = pipeline_of(spec)
    stages = stages_of(layers)
    own = [stages[number] for number in pipeline.stages_of(rank)]
    return _with_activations(static_memory(spec, weights_of(spec, own)), spec, pipeline, rank, own, compiled)


def static_memory(spec: RunSpec, weights: Sequence[WeightSize]) -> RankMemory:
    """Memory of ``weights``, their gradients, their optimizer state and its snapshot."""
    snapshot = snapshot_bytes(spec, weights)
    memory = _on_device(spec, weights)
    if spec.resources.device is Device.CPU:
        return replace(memory, snapshot=snapshot)
    return replace(memory, host=memory.host + snapshot)


def _on_device(spec: RunSpec, weights: Sequence[WeightSize]) -> RankMemory:
    tensors = [weight.elements for weight in weights]
    if _on_deepspeed(spec):
        return _deepspeed(spec, tensors)
    if spec.precision.fp8 is not None:
        return _fp8(spec, spec.precision.fp8, tensors)
    return _native(spec, weights)


def snapshot_bytes(spec: RunSpec, weights: Sequence[WeightSize]) -> int:
    """The largest copy of ``weights`` and their optimizer state that a rank makes for a checkpoint.

    Each tensor is copied once in the cluster. The ranks of a node that have the same tensors divide them.
    """
    fp8, zero, degrees = spec.precision.fp8, spec.parallelism.zero_stage, spec.degrees
    if _on_deepspeed(
        spec
    ):  # the ranks take turns with entire tensors, which they gather before they copy them
        elements = sum(weight.elements for weight in weights)
        return 2 * 4 * (1 + len(spec.optimizer.states)) * elements // degrees.ranks
    by_data = fp8 is not None and fp8.level is FP8Level.O3
    ranks = degrees.data if by_data else degrees.shard if zero else 1
    if zero == 3:
        owned = [[weight._replace(elements=-(-weight.elements // ranks)) for weight in weights]]
    else:
        owned = _shares(weights, ranks)
    copies = _copies_on_node(spec, sharded=ranks > 1, by_data=by_data)
    written = [share for one in owned for share in _shares(one, copies)]
    if fp8 is None:
        return max(sum(4 * weight.elements for weight in share) + _state_bytes(share) for share in written)
    formats = (fp8.master_format, *spec.optimizer.formats_in_fp8(fp8))
    value_bytes = sum(format.bytes_per_value for format in formats)
    return int(value_bytes * max(sum(weight.elements for weight in share) for share in written))


def _copies_on_node(spec: RunSpec, sharded: bool, by_data: bool) -> int:
    """How many ranks of the first node have the same state.

    Args:
        sharded: whether the ranks of a shard group have different parts.
        by_data: whether all data ranks have.
    """
    if by_data:
        return 1
    places = [spec.degrees.coordinates(rank) for rank in range(spec.resources.slots_per_node)]
    first = places[0]
    return sum(
        (place.pipeline, place.tensor) == (first.pipeline, first.tensor)
        and not (sharded and place.shard != first.shard)
        for place in places
    )


def weights_of(spec: RunSpec, stages: Iterable[StageLayers]) -> list[WeightSize]:
    """The weights of ``stages`` on one rank of a tensor group."""
    held = list(stages)
    blocks = block_weight_sizes(spec) * sum(len(stage.layers) for stage in held)
    return blocks + end_weights(spec, any(item.first for item in held), any(item.last for item in held))


def block_weight_sizes(spec: RunSpec) -> list[WeightSize]:
    """A block's weights on one rank of a tensor group."""
    return [
        WeightSize(_elements(weight, spec), _states(spec, f"layers.0.{name}", len(weight.shape(spec.model))))
        for name, weight in block_weights(spec.model).items()
    ]


def linear_elements(spec: RunSpec) -> int:
    """Elements of the matrices of a block's linear layers, on one rank of a tensor group."""
    return sum(_elements(weight, spec) for weight in block_weights(spec.model).values() if weight.is_linear)


def _elements(weight: BlockWeight, spec: RunSpec) -> int:
    return weight.size(spec.model) // (1 if weight.shard_dim is None else spec.parallelism.tensor)


def _states(spec: RunSpec, weight: str, dims: int) -> int:
    return len(spec.optimizer.states_of(weight, dims))


def end_weights(spec: RunSpec, first: bool, last: bool) -> list[WeightSize]:
    """Embeddings of tokens and positions, last norm and head. Tied weights count once."""
    model = spec.model
    rows = -(-spec.data.tokenizer.size // spec.parallelism.tensor) * model.width
    matrix = [WeightSize(rows, _states(spec, "embedding.weight", 2))]
    embedding = matrix if first or (last and model.tied_embeddings) else []
    head = matrix if last and not model.tied_embeddings else []
    table = position_table_size(model, spec.batch.sequence_tokens)
    if first and table:
        embedding = [*embedding, WeightSize(table, _states(spec, "position_embedding.weight", 2))]
    return embedding + [WeightSize(last_norm_size(model), _states(spec, "norm.weight", 1))] * last + head


def largest_share(sizes: Sequence[int], ranks: int) -> int:
    """Elements on the fullest rank, if entire tensors are assigned in descending size to the emptiest rank."""
    return max(
        sum(size.elements for size in share) for share in _shares([WeightSize(size) for size in sizes], ranks)
    )


def _shares(weights: Sequence[WeightSize], ranks: int) -> list[list[WeightSize]]:
    """The weights of each rank, if entire ones are assigned in descending size to the emptiest rank."""
    loads = [0] * ranks
    shares: list[list[WeightSize]] = [[] for _ in range(ranks)]
    for weight in sorted(weights, reverse=True):
        rank = loads.index(min(loads))
        loads[rank] += weight.elements
        shares[rank].append(weight)
    return shares


def _state_bytes(weights: Sequence[WeightSize]) -> int:
    return sum(4 * weight.states * weight.elements for weight in weights)


def stage_bytes(
    spec: RunSpec, stage: StageLayers, in_flight: int, deferred: int = 0, compiled: bool = False
) -> tuple[int, int, int]:
    """(activations, gathered inputs, casts) of a stage with the given numbers of micro batches."""
    tokens = spec.batch.micro_sequences * spec.batch.sequence_tokens
    weights = linear_elements(spec)
    activations = gathered = casts = 0.0
    for mode, layers in Counter(block_mode(spec, layer, compiled) for layer in stage.layers).items():
        one = activation_bytes(spec.model, mode)
        stored = in_flight * tokens * one.rest + deferred * tokens * deferred_bytes(spec.model, mode)
        if mode.recompute is not RecomputeKind.FULL:
            stored += in_flight * score_bytes(spec)
        sets_of_casts = 1 if _keeps_weight_casts(spec, mode.recompute) else in_flight
        cast = sets_of_casts * weights * cast_bytes_per_weight(mode)
        if mode.precision is PrecisionKind.FP8 and keeps_weight_operands(spec):
            cast += 2 * weights
        activations += layers * stored
        gathered += layers * in_flight * tokens * one.gathered
        casts += layers * cast
    if (
        not stage.last and spec.parallelism.pipeline > 1
    ):  # torch keeps what was sent until its gradient arrives
        activations += in_flight * stream_bytes(spec)
    activations += in_flight * document_bytes(spec)
    return int(activations), int(gathered), int(casts)


def score_bytes(spec: RunSpec) -> int:
    """Bytes that a layer also stores if no kernel computes its attention: the variant's values for each pair of positions, or scores
    with a soft cap and as probabilities. They are float32, and cast for the matmul with the values. Keys and values are repeated for
    each query head.
    """
    model, batch = spec.model, spec.batch
    stored = attention_of(model).stored_scores
    if model.attn_logit_softcapping is not None and not _uses_flex_attention(spec):
        stored = max(stored, 2)
    if stored == 0:
        return 0
    size, cast = (4, 0) if spec.precision.kind is PrecisionKind.FP32 else (2, 2)
    scores = (4 * stored + cast) * batch.sequence_tokens * model.heads
    repeated = 2 * size * (model.query_features - model.key_features)
    return batch.micro_sequences * batch.sequence_tokens * (scores + repeated) // spec.parallelism.tensor


def _uses_flex_attention(spec: RunSpec) -> bool:
    """Whether masked attention stores nothing for pairs of positions."""
    return spec.resources.device is not Device.CPU and spec.model.features_per_head >= FLEX_HEAD_SIZE


def document_bytes(spec: RunSpec) -> int:
    """Tables of rotary positions that restart with each document of a micro batch, and masks where they are tensors."""
    if not spec.batch.document_mask:
        return 0
    model, batch = spec.model, spec.batch
    tables = 2 * 4 * batch.sequence_tokens * model.rotary_features
    if _uses_flex_attention(spec):
        return batch.micro_sequences * tables
    window = model.sliding_window
    masks = 2 if window is not None and window < batch.sequence_tokens else 1
    size = 4 if spec.precision.kind is PrecisionKind.FP32 else 2
    return batch.micro_sequences * (tables + masks * size * batch.sequence_tokens**2)


def keeps_weight_operands(spec: RunSpec) -> bool:
    """Whether FP8 layers keep E4M3 codes of their weights, by rows and transposed: 2 bytes per weight.

    They save the 6 bytes per weight that each micro batch would read and write to cast float16 weights forward and
    backward, so they are worth it from the second micro batch of a step on. Scales by row or block differ between the
    two matmuls, and O3 has E4M3 weights to save memory.
    """
    fp8 = spec.precision.fp8
    if fp8 is None or fp8.level is FP8Level.O3 or fp8.scaling is not ScalingKind.TENSOR:
        return False
    return spec.accumulation_steps > 1


def keeps_weight_casts(spec: RunSpec, layer: int) -> bool:
    """Whether the linear layers of block ``layer`` keep bfloat16 casts of their weights for all micro batches of a step.

    They save the 6 bytes per weight that each further micro batch would read and write. Without recomputation a micro
    batch keeps its casts for its backward pass, so they need no additional memory; a recomputed block keeps none.
    """
    return _keeps_weight_casts(spec, _recompute_kind(spec, layer))


def _keeps_weight_casts(spec: RunSpec, recompute: RecomputeKind) -> bool:
    return _has_whole_sums(spec) and spec.accumulation_steps > 1 and recompute is RecomputeKind.NONE


def sums_in_matmuls(spec: RunSpec) -> bool:
    """Whether the matmuls of bfloat16 runs add weight gradients to those of earlier micro batches, in float32.

    The sums then use memory for the entire step. So do buckets of data ranks, and with several micro batches the sums
    exist at a step's peak anyway. Stages 2 and 3 of ZeRO remove each gradient. Zero-bubble schedules defer gradients
    first (``linear.deferred_weight_gradients``). In float32 the results would differ in rounding.
    """
    if not _has_whole_sums(spec):
        return False
    several = spec.accumulation_steps > 1 or spec.degrees.data > 1
    return several and not spec.parallelism.schedule.is_zero_bubble


def _has_whole_sums(spec: RunSpec) -> bool:
    """Whether this is a bfloat16 run whose ranks have float32 sums of all gradients of their weights during a step."""
    sharded = spec.parallelism.zero_stage > 1 and spec.degrees.shard > 1
    return spec.precision.kind is PrecisionKind.BF16 and not sharded and not _on_deepspeed(spec)


def block_mode(spec: RunSpec, layer: int, compiled: bool = False) -> BlockMode:
    """How a layer is computed."""
    kind = spec.precision.kind
    if kind is PrecisionKind.FP8 and _is_bf16(spec, layer):
        kind = PrecisionKind.BF16
    return BlockMode(kind, compiled, _recompute_kind(spec, layer), spec.parallelism.tensor)


def _recompute_kind(spec: RunSpec, layer: int) -> RecomputeKind:
    return spec.memory.recompute if spec.memory.recomputes(layer) else RecomputeKind.NONE


def _is_bf16(spec: RunSpec, layer: int) -> bool:
    fp8 = spec.precision.fp8
    assert fp8 is not None
    return layer < fp8.bf16_first_layers or layer >= spec.model.layers - fp8.bf16_last_layers


def _native(spec: RunSpec, weights: Sequence[WeightSize]) -> RankMemory:
    shard, zero = spec.degrees.shard, spec.parallelism.zero_stage
    elements = sum(weight.elements for weight in weights)
    if zero == 3 and shard > 1:
        parts = [weight._replace(elements=-(-weight.elements // shard)) for weight in weights]
        part = sum(weight.elements for weight in parts)
        block = sum(weight.elements for weight in block_weight_sizes(spec))
        gathered = 4 * 2 * block  # FSDP2 gathers a block ahead of the one that computes
        return RankMemory(
            weights=4 * part, copies=gathered, gradients=4 * part, optimizer=_state_bytes(parts)
        )
    shares = _shares(weights, shard)
    owned = max(sum(weight.elements for weight in share) for share in shares)
    gradients = 4 * elements
    if zero == 2 and spec.parallelism.pipeline == 1:
        gradients = min(gradients, 4 * owned + 2 * _GRADIENT_BUCKET_BYTES)
    elif zero == 2:
        gradients += 4 * owned
    optimizer = max(map(_state_bytes, shares)) if zero else _state_bytes(weights)
    return RankMemory(weights=4 * elements, gradients=gradients, optimizer=optimizer)


def _fp8(spec: RunSpec, fp8: FP8Spec, tensors: Sequence[int]) -> RankMemory:
    elements, data = sum(tensors), spec.degrees.data
    cut = fp8.level is FP8Level.O3
    owned = largest_share(tensors, data) if cut else elements
    states = sum(format.bytes_per_value for format in spec.optimizer.formats_in_fp8(fp8))
    matrices = sum(size for size in tensors if size > spec.model.width)
    return RankMemory(
        weights=int(fp8.master_format.bytes_per_value * owned),
        copies=matrices + 4 * (elements - matrices) if cut else 0,
        gradients=_fp8_gradients(spec, fp8, elements, owned),
        optimizer=int(states * owned),
    )


def _fp8_gradients(spec: RunSpec, fp8: FP8Spec, elements: int, owned: int) -> int:
    """E4M3 gradients, what autograd accumulates before, and a bucket that is being reduced over data ranks."""
    wide = 2 if fp8.accumulation is AccumulationKind.BF16 else 4
    bucket = min(elements, _FP8_BUCKET_ELEMENTS)
    arriving = wide * (elements if spec.accumulation_steps > 1 else bucket)
    data = spec.degrees.data
    travelling = bucket * (wide + 2 + 4 / data) if data > 1 else bucket * wide
    return int((0 if fp8.optimizer_in_backward else owned) + arriving + travelling)


def _on_deepspeed(spec: RunSpec) -> bool:
    return spec.parallelism.engine is EngineKind.DEEPSPEED


def _deepspeed(spec: RunSpec, tensors: Sequence[int]) -> RankMemory:
    """Everything is in float32. With offload, the host also needs memory for transfers."""
    elements, zero, offload = sum(tensors), spec.parallelism.zero_stage, spec.parallelism.offload
    part = -(-elements // spec.degrees.data)
    weights = 4 * (part if zero == 3 else elements)
    gathered = 4 * min(elements, _DEEPSPEED_GATHERED_ELEMENTS) if zero == 3 else 0
    kept = 4 * (part if zero >= 2 else elements)
    passing = _deepspeed_passing(zero, elements)
    moments = 4 * len(spec.optimizer.states)
    states = (4 + moments) * part if zero else moments * elements
    host = 0
    if offload is not OffloadKind.NONE:
        host, states = states + 8 * part, 0
        if zero >= 2:
            host, kept = host + (4 * part if zero == 2 and spec.accumulation_steps > 1 else 0), 0
    if offload is OffloadKind.PARAMETERS:
        host, weights = host + weights, 0
    return RankMemory(weights=weights, copies=gathered, gradients=kept + passing, optimizer=states, host=host)


def _deepspeed_passing(zero: int, elements: int) -> int:
    """Gradients between the backward pass and their final storage: the bucket, and the flat copy of its content."""
    bucket = 4 * _DEEPSPEED_BUCKET_ELEMENTS if zero else 0
    copied = (
        4 * min(elements, _DEEPSPEED_BUCKET_ELEMENTS) if zero != 1 else 0
    )  # at stage 1, gradients move into the bucket
    return bucket + copied


def _with_activations(
    static: RankMemory,
    spec: RunSpec,
    pipeline: Pipeline,
    rank: int,
    own: Sequence[StageLayers],
    compiled: bool,
) -> RankMemory:
    """``static`` with the activations of the micro batches at their peak."""
    most = (0, 0, 0)
    seen = set()
    for moment in in_flight(torch_action_orders(pipeline)[rank]):
        counts = tuple(
            (moment[item.number].whole, moment[item.number].deferred) if item.number in moment else (0, 0)
            for item in own
        )
        if counts not in seen:
            seen.add(counts)
            found = [stage_bytes(spec, one, *count, compiled) for one, count in zip(own, counts, strict=True)]
            most = max(most, tuple(map(sum, zip(*found, strict=True))), key=sum)  # type: ignore[assignment]
    casts = most[2]
    if spec.parallelism.zero_stage == 3:
        # The native engine gathers embedding and head before the first block, until after its backward pass.
        ends = 4 * sum(weight.elements for weight in end_weights(spec, own[0].first, own[-1].last))
        casts = (
            0 if _on_deepspeed(spec) else casts + ends
        )  # DeepSpeed's weights are not leaves, so casts are not kept
    modes = {block_mode(spec, layer, compiled) for item in own for layer in item.layers}
    again = max(recompute_bytes(spec.model, mode) for mode in modes)
    tokens = spec.batch.micro_sequences * spec.batch.sequence_tokens
    cut = spec.parallelism.tensor > 1
    scores = score_bytes(spec) if spec.memory.recompute is RecomputeKind.FULL else 0
    return replace(
        static,
        copies=static.copies + casts,
        activations=most[0] + int(tokens * again) + scores + (0 if cut else most[1]),
        gathered=most[1] if cut else 0,
        loss=loss_bytes(spec, compiled) if own[-1].last else 0,
        transfers=transfer_bytes(spec),
    )


def loss_bytes(spec: RunSpec, compiled: bool = False) -> int:
    """Logits and their gradients for a chunk of tokens, and gradients that wait for the backward pass."""
    tokens = spec.batch.micro_sequences * spec.batch.sequence_tokens
    rows = -(-spec.data.tokenizer.size // spec.parallelism.tensor)
    size = 4 if spec.precision.kind is PrecisionKind.FP32 else 2
    width = spec.model.width
    chunks = -(-tokens // spec.memory.loss_chunk_tokens)
    features = tokens * width * size
    cast = 2 * rows * width if size == 2 else 0
    a_logit = 2 * size if compiled else size + 4 + size
    capped = 0 if spec.model.final_logit_softcapping is None else 4
    a_logit += 0 if compiled else capped
    at_once = 2 * features + cast + 4 * rows * width + -(-tokens // chunks) * rows * a_logit
    if chunks > 1 or spec.parallelism.tensor > 1:
        return at_once
    # Plain cross-entropy: logits, in float32, and log-softmax, in float32. Compiled for a GPU it is computed at once too.
    plain = features + cast + tokens * rows * (size + 8 + capped)
    return max(plain, at_once) if compiled else plain


def transfer_bytes(spec: RunSpec) -> int:
    """Buffers of one received and one sent gradient."""
    return 2 * stream_bytes(spec) if spec.parallelism.pipeline > 1 else 0


def stream_bytes(spec: RunSpec) -> int:
    """The residual stream of a micro batch on one rank of a tensor group."""
    tokens = spec.batch.micro_sequences * spec.batch.sequence_tokens
    size = 4 if spec.precision.kind is PrecisionKind.FP32 else 2
    return tokens * spec.model.width * size // spec.parallelism.tensor
