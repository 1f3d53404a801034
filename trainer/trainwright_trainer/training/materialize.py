"""A rank's model and its updater: built on the meta device, sharded, given memory, and handed to an updater.

The engine, the ZeRO stage and the number format decide which updater it is. Nothing is read from a checkpoint
here, and ``build`` applies the remaining passes over the model.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import ShardSpecs, unsharded_specs
from trainwright_trainer.fp8.compute.conversion import convert
from trainwright_trainer.fp8.compute.matmul import check_device
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.model.init import initial_weight, initialize
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.optim.replicated_adamw import ReplicatedAdamW
from trainwright_trainer.optim.sharded_adamw import ShardedAdamW
from trainwright_trainer.optim.updater import Updater
from trainwright_trainer.parallel.data.fsdp import shard_weights
from trainwright_trainer.parallel.data.zero import shard_gradients, shard_states
from trainwright_trainer.parallel.pipeline.stages import Stages, split_model
from trainwright_trainer.parallel.tensor.parallelize import parallelize_modules, shard_matrices


def build_meta_model(spec: RunSpec, mesh: Mesh, stages: Stages | None) -> tuple[Transformer, ShardSpecs]:
    """This rank's part of the model, on the meta device."""
    with torch.device("meta"):
        model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    shard_specs = unsharded_specs(model)
    if stages is not None:
        shard_specs = split_model(model, stages.of_rank(mesh.pipeline.rank), shard_specs)
    if mesh.tensor.ranks > 1:
        shard_specs = shard_matrices(model, shard_specs, mesh.tensor)
    return model, shard_specs


def build_updater(
    model: Transformer, shard_specs: ShardSpecs, spec: RunSpec, mesh: Mesh, fresh: bool
) -> tuple[Transformer, Updater]:
    """Give ``model``, which is on the meta device, memory on this rank's device, and build the updater that
    holds its weights.

    Args:
        fresh: whether weights get their initial values; otherwise they are left uninitialized.
    """
    native = spec.parallelism.engine is EngineKind.NATIVE
    if native and _zero_stage(spec, mesh) == 3:
        apply_module_passes(model, spec, mesh)
        initial_weights = partial(initial_weight, spec=spec.model, seed=spec.seed) if fresh else None
        shard = shard_weights(model, shard_specs, spec.precision.kind, mesh, initial_weights)
        return model, ShardedAdamW(shard, spec.optimizer, mesh)
    fp8 = spec.precision.fp8
    # In host memory: what FP8 keeps of the weights is smaller, and DeepSpeed places them itself.
    _allocate(model, mesh.device if native and fp8 is None else torch.device("cpu"))
    if fresh:
        initialize(model, spec.model, spec.seed, shard_specs)
    if not native:
        from trainwright_trainer.training.deepspeed_engine import DeepSpeedUpdater

        return model, DeepSpeedUpdater(model, shard_specs, spec, mesh)
    if fp8 is None:
        model.to(mesh.device)  # the rotary tables; the weights are there
        return model, _build_float32_updater(model, shard_specs, spec, mesh)
    check_device(fp8.scaling, mesh.device)
    initial = _detach_weights(model, mesh.device)
    return model, FP8Updater(convert(model, fp8, shard_specs.forward_order), initial, shard_specs, spec, mesh)


def apply_module_passes(model: Transformer, spec: RunSpec, mesh: Mesh) -> None:
    """Replace the classes of modules by those that compute on this rank's part and recompute activations."""
    if mesh.tensor.ranks > 1:
        parallelize_modules(model, spec.data.tokenizer.size, mesh.tensor, spec.parallelism.tensor_chunks)
    recompute(model, spec.memory)


def _allocate(model: Transformer, device: torch.device) -> None:
    """Allocate the parameters of a meta model on ``device``, uninitialized. Tied weights stay tied."""
    replaced: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight not in replaced:
                replaced[weight] = nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype, device=device))
            setattr(module, name, replaced[weight])
    model.fill_tables()


def _build_float32_updater(model: Transformer, shard_specs: ShardSpecs, spec: RunSpec, mesh: Mesh) -> Updater:
    """The updater of a run without FP8 whose ranks hold entire weights."""
    stage = _zero_stage(spec, mesh)
    if not stage:
        return ReplicatedAdamW(model, shard_specs, spec.optimizer, mesh)
    shard_model = shard_states if stage == 1 else shard_gradients
    return ShardedAdamW(shard_model(model, shard_specs, mesh), spec.optimizer, mesh)


def _zero_stage(spec: RunSpec, mesh: Mesh) -> int:
    """What the data ranks shard: nothing if there is only one."""
    return spec.parallelism.zero_stage if mesh.shard.ranks > 1 else 0


def _detach_weights(model: Transformer, device: torch.device) -> dict[str, Tensor]:
    """The weights by name, where they are. The model, moved to ``device``, keeps their shapes without memory."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.data = torch.zeros((), device=device).expand(weight.shape)
    model.to(device)
    return weights
