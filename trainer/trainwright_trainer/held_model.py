"""A rank's model and who holds its weights: made without memory, cut, given its room, and handed to an updater.

This is where the engine, the stage of ZeRO and the number format choose who that is. Nothing is read from a checkpoint
here, and how the model's passes are made is the business of ``build``.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from trainwright.contracts.parallelism_spec import EngineKind
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.fp8.convert import convert
from trainwright_trainer.fp8.products import check_device
from trainwright_trainer.fp8.updater import FP8Updater
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.model.init import initial_weight, initialize
from trainwright_trainer.model.recompute import recompute
from trainwright_trainer.model.transformer import Transformer
from trainwright_trainer.optim.replicated import ReplicatedAdamW
from trainwright_trainer.optim.sharded import ShardedAdamW
from trainwright_trainer.parallel.data.shares import share_gradients, share_states
from trainwright_trainer.parallel.data.slices import share_weights
from trainwright_trainer.parallel.pipeline.stages import Stages, cut
from trainwright_trainer.parallel.tensor.layers import cut_weights, share_work
from trainwright_trainer.parts import Parts, whole_parts
from trainwright_trainer.updater import Updater


def empty_model(spec: RunSpec, mesh: Mesh, stages: Stages | None) -> tuple[Transformer, Parts]:
    """This rank's part of the model, which takes no memory yet."""
    with torch.device("meta"):
        model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    parts = whole_parts(model)
    if stages is not None:
        parts = cut(model, stages.of(mesh.pipeline.rank), parts)
    if mesh.tensor.ranks > 1:
        parts = cut_weights(model, parts, mesh.tensor)
    return model, parts


def hold(
    model: Transformer, parts: Parts, spec: RunSpec, mesh: Mesh, fresh: bool
) -> tuple[Transformer, Updater]:
    """``model``, which takes no memory yet, as it is trained on this rank's device, and who holds its weights there.

    Args:
        fresh: weights get their first values; else they are not filled.
    """
    native = spec.parallelism.engine is EngineKind.NATIVE
    if native and _zero_stage(spec, mesh) == 3:
        change_modules(model, spec, mesh)
        begins_with = partial(initial_weight, spec=spec.model, seed=spec.seed) if fresh else None
        shares = share_weights(model, parts, spec.precision.kind, mesh, begins_with)
        return model, ShardedAdamW(shares, spec.optimizer, mesh)
    _make_room(model)
    if fresh:
        initialize(model, spec.model, spec.seed, parts)
    if not native:
        from trainwright_trainer.deepspeed_engine import DeepSpeedUpdater

        return model, DeepSpeedUpdater(model, parts, spec, mesh)
    fp8 = spec.precision.fp8
    if fp8 is None:
        model.to(mesh.device)
        return model, _updater(model, parts, spec, mesh)
    check_device(fp8.scaling, mesh.device)
    initial = _put_aside(model, mesh.device)
    return model, FP8Updater(convert(model, fp8, parts.order), initial, parts, spec, mesh)


def change_modules(model: Transformer, spec: RunSpec, mesh: Mesh) -> None:
    """Give modules the classes that compute on this rank's part and recompute."""
    if mesh.tensor.ranks > 1:
        share_work(model, spec.data.tokenizer.size, mesh.tensor, spec.parallelism.tensor_chunks)
    recompute(model, spec.memory)


def _make_room(model: Transformer) -> None:
    """Give a model that was made without memory its own on the CPU. What was one weight stays one."""
    taken: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            if weight not in taken:
                taken[weight] = nn.Parameter(torch.empty(weight.shape, dtype=weight.dtype))
            setattr(module, name, taken[weight])
    model.fill_tables()


def _updater(model: Transformer, parts: Parts, spec: RunSpec, mesh: Mesh) -> Updater:
    """Who holds the whole weights of a run without FP8."""
    stage = _zero_stage(spec, mesh)
    if not stage:
        return ReplicatedAdamW(model, parts, spec.optimizer, mesh)
    share = share_states if stage == 1 else share_gradients
    return ShardedAdamW(share(model, parts, mesh), spec.optimizer, mesh)


def _zero_stage(spec: RunSpec, mesh: Mesh) -> int:
    """What data ranks share: nothing where there is none to share with."""
    return spec.parallelism.zero_stage if mesh.shard.ranks > 1 else 0


def _put_aside(model: Transformer, device: torch.device) -> dict[str, Tensor]:
    """The weights by name, where they are; in the model's place on ``device`` they leave their shapes and no memory."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.data = torch.zeros((), device=device).expand(weight.shape)
    model.to(device)
    return weights
