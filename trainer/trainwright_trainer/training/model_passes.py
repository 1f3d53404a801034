"""The passes over the model, in the order in which they are applied.

The entire model is built on the meta device, without regard to ranks or precision. Each pass changes its modules in
place: it deletes or shrinks them, or replaces them by modules that compute the same differently
(``runtime.module_replacement``). No pass reads a weight, so weights get memory once, after the last one
(``materialize``). The order is the same for every layout, engine and number format; a run uses some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from trainwright.contracts.block_parts import norm_count
from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.precision_spec import PrecisionKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.training_spec import RecomputeKind
from trainwright.planner.compilation import compiles
from trainwright.planner.memory import FLEX_HEAD_SIZE, keeps_weight_casts, sums_in_matmuls
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpecs, unsharded_specs
from trainwright_trainer.fp8.compute.conversion import ConvertedModel, convert
from trainwright_trainer.fp8.compute.matmul import check_device
from trainwright_trainer.linear.deferred_weight_gradients import DeferredWeightGradients
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.model.fused_projections import fuse_projections
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.residual_dtype import set_residual_dtype
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.parallel.data.fsdp import apply_fsdp
from trainwright_trainer.parallel.pipeline.deferred_linear import defer_weight_gradients
from trainwright_trainer.parallel.pipeline.stages import Stages, split_model
from trainwright_trainer.parallel.tensor.parallelize import parallelize_modules, shard_matrices
from trainwright_trainer.runtime.attention_kernels import prefer_attention_kernels
from trainwright_trainer.runtime.compilation import can_compile, compile_blocks, recompute_operands
from trainwright_trainer.runtime.module_replacement import replace_modules


@dataclass
class ModelParts:
    """This rank's part of the model, and the results of passes for other components."""

    model: Transformer
    shard_specs: ShardSpecs
    fp8: ConvertedModel | None = None
    """The weights for the updater, if layers were converted."""

    deferred: DeferredWeightGradients | None = None
    """The deferred weight gradients for the schedule, if layers defer them."""

    compiled: bool = False


class Pass(NamedTuple):
    """One change of the model."""

    name: str
    apply: Callable[[ModelParts], None]


def passes(spec: RunSpec, mesh: Mesh, stages: Stages | None) -> Iterator[Pass]:
    """The passes that a rank of ``spec`` applies, in order."""
    if stages is not None:
        yield Pass("keep the layers of this rank's stages", lambda parts: _split(parts, stages, mesh))
    if mesh.tensor.ranks > 1:
        yield Pass("shard matrices over tensor ranks", lambda parts: _shard(parts, mesh))
    if spec.precision.fp8 is not None:
        yield Pass("convert layers to FP8", lambda parts: _convert(parts, spec, mesh))
    if mesh.tensor.ranks > 1:
        yield Pass(
            "compute on this rank's tokens, heads and features",
            lambda parts: parallelize_modules(
                parts.model, spec.data.tokenizer.size, mesh.tensor, spec.parallelism.tensor_chunks
            ),
        )
    on_gpu = mesh.device.type == "cuda"
    compiled = compiles(spec, on_gpu) and can_compile(spec.precision.compile, mesh.device)
    if stages is not None and stages.schedule.is_zero_bubble:
        yield Pass("defer weight gradients", _defer)
    elif sums_in_matmuls(spec):
        yield Pass("add weight gradients to their sums in the matmuls", _sum_in_matmuls)
        fused = [layer for layer in range(spec.model.layers) if keeps_weight_casts(spec, layer)]
        if compiled and on_gpu and mesh.tensor.ranks == 1 and fused:
            yield Pass("fuse projections of one input", partial(_fuse_projections, layers=fused))
    if spec.memory.recompute is not RecomputeKind.NONE:
        yield Pass("recompute activations", lambda parts: recompute(parts.model, spec.memory))
    if zero_stage(spec, mesh) == 3:
        yield Pass(
            "shard weights over data ranks", lambda parts: apply_fsdp(parts.model, spec.precision.kind, mesh)
        )
    if spec.precision.kind is PrecisionKind.BF16:
        yield Pass(
            "keep the residual stream in bfloat16",
            lambda parts: set_residual_dtype(parts.model, torch.bfloat16),
        )
    if on_gpu:
        yield Pass("prefer cuDNN's attention", lambda parts: prefer_attention_kernels())
        if uses_flex_attention(spec):
            yield Pass("compute masked attention by FlexAttention", _use_flex_attention)
    if compiled:
        have_hooks = spec.precision.fp8 is None and zero_stage(spec, mesh) > 0
        yield Pass("compile blocks", partial(_compile, have_hooks=have_hooks))


def build_parts(spec: RunSpec, mesh: Mesh, stages: Stages | None, end_of_text: int) -> ModelParts:
    """Build the model on the meta device and apply the passes.

    Args:
        end_of_text: the last token of each document of the data.
    """
    masked = end_of_text if spec.batch.document_mask else None
    with torch.device("meta"):
        model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens, masked)
    parts = ModelParts(model, unsharded_specs(model))
    for each in passes(spec, mesh, stages):
        each.apply(parts)
    return parts


def zero_stage(spec: RunSpec, mesh: Mesh) -> int:
    """The ZeRO stage of the native engine: 0 with one data rank, which has nothing to shard."""
    native = spec.parallelism.engine is EngineKind.NATIVE
    return spec.parallelism.zero_stage if native and mesh.shard.ranks > 1 else 0


def uses_flex_attention(spec: RunSpec) -> bool:
    """Whether layers compute under a mask, and have heads that FlexAttention takes on a GPU."""
    return has_masks(spec) and spec.model.features_per_head >= FLEX_HEAD_SIZE


def has_masks(spec: RunSpec) -> bool:
    """Whether layers compute under a mask: one narrower than the causal one, or any if scores have a soft cap."""
    window = spec.model.sliding_window
    return is_masked_everywhere(spec) or (window is not None and window < spec.batch.sequence_tokens)


def is_masked_everywhere(spec: RunSpec) -> bool:
    """Whether layers without a window compute under a mask too."""
    return spec.batch.document_mask or spec.model.attn_logit_softcapping is not None


def _split(parts: ModelParts, stages: Stages, mesh: Mesh) -> None:
    parts.shard_specs = split_model(parts.model, stages.of_rank(mesh.pipeline.rank), parts.shard_specs)


def _shard(parts: ModelParts, mesh: Mesh) -> None:
    parts.shard_specs = shard_matrices(parts.model, parts.shard_specs, mesh.tensor)


def _convert(parts: ModelParts, spec: RunSpec, mesh: Mesh) -> None:
    assert spec.precision.fp8 is not None
    check_device(spec.precision.fp8.scaling, mesh.device)
    one_input = norm_count(spec.model) == 1
    order = parts.shard_specs.forward_order
    parts.fp8 = convert(parts.model, spec.precision.fp8, mesh.device, order, one_input)


def _defer(parts: ModelParts) -> None:
    parts.deferred = DeferredWeightGradients()
    defer_weight_gradients(parts.model, parts.deferred)


def _sum_in_matmuls(parts: ModelParts) -> None:
    replace_modules(parts.model.layers, {nn.Linear: partial(DenseLinear, sums_gradient=True)})


def _fuse_projections(parts: ModelParts, layers: Collection[int]) -> None:
    """Join matmuls in ``layers``. They keep casts of their weights, which can share one tensor."""
    fuse_projections(parts.model.layers, lambda path: int(path.partition(".")[0]) in layers)


def _use_flex_attention(parts: ModelParts) -> None:
    # importing the kernel's compiler takes seconds
    from trainwright_trainer.model.flex_attention import use_flex_attention

    use_flex_attention(parts.model)


def _compile(parts: ModelParts, have_hooks: bool) -> None:
    if parts.fp8 is not None:
        recompute_operands()
    compile_blocks(parts.model.layers.values(), have_hooks)
    parts.compiled = True
