"""Memory for a rank's part of the model, and the updater that owns its weights.

The engine, the ZeRO stage and the number format determine the updater. Nothing is read from a checkpoint here.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.run_spec import RunSpec
from trainwright.planner.memory import keeps_weight_casts
from trainwright_trainer.distributed.equal_weights import make_replicas_equal
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.compute.conversion import ConvertedModel
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.linear.weight_casts import WeightCasts
from trainwright_trainer.model.fused_projections import FusedProjections
from trainwright_trainer.model.init import fill_weights, initial_weights, initialize
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.optim.replicated_updater import ReplicatedUpdater
from trainwright_trainer.optim.sharded_updater import ShardedUpdater
from trainwright_trainer.optim.updater import Updater
from trainwright_trainer.parallel.data.fsdp import allocate_shards
from trainwright_trainer.parallel.data.zero import shard_gradients, shard_states
from trainwright_trainer.training.model_passes import ModelParts, zero_stage


def materialize(parts: ModelParts, spec: RunSpec, mesh: Mesh, fresh: bool) -> Updater:
    """Give the model, which is on the meta device, memory on this rank's device.

    Args:
        fresh: whether weights get their initial values; otherwise they are left uninitialized.
    """
    model, shard_specs = parts.model, parts.shard_specs
    if parts.fp8 is not None:
        return _materialize_fp8(parts, parts.fp8, spec, mesh, fresh)
    native = spec.parallelism.engine is EngineKind.NATIVE
    stage = zero_stage(spec, mesh)
    if stage == 3:
        fill = partial(fill_weights, spec=spec.model, seed=spec.seed) if fresh else None
        return ShardedUpdater(allocate_shards(model, shard_specs, mesh, fill), spec.optimizer, mesh)
    # DeepSpeed places weights itself.
    _allocate(model, mesh.device if native else torch.device("cpu"))
    if fresh:
        initialize(model, spec.model, spec.seed, shard_specs)
        make_replicas_equal(dict(model.named_parameters()), shard_specs, mesh)
    if not native:
        from trainwright_trainer.training.deepspeed_engine import DeepSpeedUpdater

        return DeepSpeedUpdater(model, shard_specs, spec, mesh)
    model.to(mesh.device)  # the rotary tables; the weights are there
    if not stage:
        return ReplicatedUpdater(model, shard_specs, spec.optimizer, mesh, _weight_casts(model, spec))
    casts = _weight_casts(model, spec)  # owners send these
    shard_model = shard_states if stage == 1 else shard_gradients
    return ShardedUpdater(shard_model(model, shard_specs, mesh), spec.optimizer, mesh, casts)


def _weight_casts(model: Transformer, spec: RunSpec) -> WeightCasts | None:
    """The casts of the layers for which the planner counts them; None if there are none."""
    modules = [
        module
        for layer, block in model.layers.items()
        if keeps_weight_casts(spec, int(layer))
        for module in block.modules()
    ]
    layers = [module for module in modules if isinstance(module, DenseLinear)]
    fused = [module for module in modules if isinstance(module, FusedProjections)]
    return WeightCasts(layers, torch.bfloat16, fused) if layers else None


def _materialize_fp8(
    parts: ModelParts, converted: ConvertedModel, spec: RunSpec, mesh: Mesh, fresh: bool
) -> Updater:
    """The updater has the memory of the weights. Initial values are made in host memory."""
    slices = {name: parts.shard_specs.local[name].slice for name in (converted.weights if fresh else ())}
    initial = initial_weights(slices, spec.model, spec.seed)
    if fresh:
        make_replicas_equal(initial, parts.shard_specs, mesh)
    parts.model.fill_tables()
    parts.model.to(mesh.device)
    return FP8Updater(converted, initial if fresh else None, parts.shard_specs, spec, mesh)


def _allocate(model: Transformer, device: torch.device) -> None:
    """Allocate the parameters of a meta model on ``device``, uninitialized. Tied weights stay tied."""
    replaced: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight not in replaced:
                replaced[weight] = nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype, device=device))
            setattr(module, name, replaced[weight])
    model.fill_tables()
