"""ZeRO and FSDP with non-finite steps, lost ranks, uneven batches and layout changes."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from tests.trainer.jobs import losses
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import (
    CASES,
    EPSILON,
    LEARNING_RATE,
    TensorShard,
    assembled,
    job_writer,
    one_step,
    start,
    tensor_shards,
    uneven_losses,
    validation_loss,
)
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.checkpoint.load import read_tensor
from trainwright_trainer.distributed.axis import RankLostError
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.linear.dense import DenseLinear
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import Training
from trainwright_trainer.training.loop import train


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return job_writer(data, tmp_path_factory)


def _with_a_nan(mesh: Mesh, job_file: Path, where: str) -> tuple[bool, list[Any]]:
    """Whether the second of three steps, in which one rank computes NaN, leaves the state unchanged."""
    training = start(mesh, job_file)
    one_step(training, 1)
    if training.spec.parallelism.zero_stage < 3:
        validation_loss(training)  # updated weights arrive during the next forward pass
    before = _all_held(training)

    def spoil(_: Any, __: Any, features: Tensor) -> Tensor:
        if where == "loss":
            return features * torch.nan
        features.register_hook(lambda gradient: gradient * torch.nan)
        return features

    if mesh.rank == mesh.ranks - 1:
        hook = training.engine.model.norm.register_forward_hook(spoil)
    bad = one_step(training, 2)
    if mesh.rank == mesh.ranks - 1:
        hook.remove()
    after = _all_held(training)
    unchanged = all(torch.equal(before[name], after[name]) for name in before)
    assert training.engine.updater.scalars() == {"updates": 1}
    return unchanged, [bad.finite, bad.non_finite_tensor, one_step(training, 3).loss]


def _all_held(training: Training) -> dict[str, Tensor]:
    weights = {
        name: (weight.to_local() if isinstance(weight, DTensor) else weight).detach().clone()
        for name, weight in training.engine.model.named_parameters()
    }
    return weights | {name: shard.tensor for name, shard in tensor_shards(training).items()}


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(
    ("stage", "where"),
    [(stage, where) for stage in (1, 2, 3) for where in ("loss", "gradient")],
)
def test_a_non_finite_step_changes_no_state_on_any_rank(
    stage: int, where: str, job: Callable[..., Path]
) -> None:
    path = job(4, parallelism={"zero_stage": stage, "shard": 2})
    results = on_mesh(Degrees(replicas=2, shard=2), _with_a_nan, path, where)
    assert all(unchanged for unchanged, _ in results)
    (finite, name, next_loss) = results[0][1]
    assert not finite
    assert name == "norm.weight:gradient" if where == "loss" else name.endswith(":gradient")
    assert next_loss == next_loss, "the step after it is finite"
    assert all(rest == results[0][1] for _, rest in results)


def _layers_with_casts(training: Training) -> dict[str, DenseLinear]:
    """The layers, by the names of their weights."""
    layers = {f"{name}.weight": module for name, module in training.engine.model.named_modules()}
    return {
        name: layer
        for name, layer in layers.items()
        if isinstance(layer, DenseLinear) and layer.weight_cast is not None
    }


def _learn_without_foreign_weights(mesh: Mesh, job_file: Path, spoils: bool) -> list[float]:
    """Losses of three steps and of a validation, with NaN in the weights that another rank updates and whose casts it
    sends, if ``spoils``."""
    training = start(mesh, job_file)
    own = {name.removeprefix("model.") for name in tensor_shards(training)}
    foreign = [layer for name, layer in _layers_with_casts(training).items() if name not in own]
    assert foreign
    for layer in foreign if spoils else ():
        layer.weight.detach().fill_(torch.nan)
    losses = [one_step(training, step).loss for step in (1, 2, 3)]
    assert not spoils or all(bool(layer.weight.isnan().all()) for layer in foreign)
    return [*losses, validation_loss(training)]


@pytest.mark.slow(target="layouts")
def test_nothing_computes_with_weights_whose_casts_are_sent(job: Callable[..., Path]) -> None:
    path = job(2, parallelism={"zero_stage": 1}, precision={"kind": "bf16"})
    wanted, found = (
        on_mesh(Degrees(shard=2), _learn_without_foreign_weights, path, spoils) for spoils in (False, True)
    )
    assert found == wanted


def _repeat_with_a_wrong_cast(mesh: Mesh, job_file: Path, spoils: bool) -> list[float]:
    """Losses of the second step, computed again after the first rank had an infinite cast if ``spoils``, and of the third."""
    training = start(mesh, job_file)
    one_step(training, 1)
    validation_loss(training)  # updated weights arrive during the next forward pass
    if spoils:
        if mesh.rank == 0:
            for layer in _layers_with_casts(training).values():
                assert layer.weight_cast is not None
                layer.weight_cast.fill_(torch.inf)
        assert not one_step(training, 2).finite
    return [one_step(training, step).loss for step in (2, 3)]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_wrong_cast_does_not_outlive_its_step(ranks: int, job: Callable[..., Path]) -> None:
    path = job(ranks, parallelism={"zero_stage": 1}, precision={"kind": "bf16"})
    wanted, found = (
        on_mesh(read_job(path).spec.degrees, _repeat_with_a_wrong_cast, path, spoils)
        for spoils in (False, True)
    )
    assert found == wanted


def _lose_the_other_rank(mesh: Mesh, job_file: Path) -> str:
    """The error on the first rank after the second has left."""
    training = start(mesh, job_file)
    one_step(training, 1)
    if mesh.rank == 1:
        threading.Timer(1.0, os._exit, [0]).start()  # after its answer was received
        return "gone"
    with pytest.raises(RankLostError) as raised:
        one_step(training, 2)
    return str(raised.value)


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_rank_that_lost_the_others_reports_it(stage: int, job: Callable[..., Path]) -> None:
    """This includes the places where torch's own code communicates."""
    results = on_mesh(Degrees(shard=2), _lose_the_other_rank, job(2, parallelism={"zero_stage": stage}))
    assert results[0].startswith("lost contact with another rank")


def _uneven(mesh: Mesh, job_file: Path) -> list[float]:
    return uneven_losses(start(mesh, job_file))


def test_ranks_with_fewer_validation_batches_do_not_block_the_others(job: Callable[..., Path]) -> None:
    """Each forward pass gathers weights, so all ranks must run equally many."""
    shared = job(2, parallelism={"zero_stage": 3})
    results = on_mesh(read_job(shared).spec.degrees, _uneven, shared)
    alone = job(1)
    ((one, five),) = on_mesh(read_job(alone).spec.degrees, _uneven, alone)
    assert results[0] == results[1] == pytest.approx([one, five], rel=1e-6)


LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "one process": (1, {}),
    "stage 1 over 2": CASES["stage 1 over 2"],
    "stage 2, 2 replicas of 2": CASES["stage 2, 2 replicas of 2"],
    "stage 3, 2 replicas of 2": CASES["stage 3, 2 replicas of 2"],
    "stage 3 over 2": CASES["stage 3 over 2"],
    "stage 0 over 2": (2, {}),
    "stage 2 over 2": CASES["stage 2 over 2"],
}


def _train(mesh: Mesh, job_file: Path) -> dict[str, TensorShard]:
    training = start(mesh, job_file)
    initial = tensor_shards(training)
    train(training)
    return initial


# Twice as many trainings as layouts.
@pytest.mark.timeout(400)
@pytest.mark.slow(target="layouts")
def test_a_checkpoint_of_any_stage_resumes_in_any_other(job: Callable[..., Path]) -> None:
    def trained(layout: str, resume: Path | None = None) -> tuple[Path, list[float], dict[str, Tensor]]:
        ranks, parallelism = LAYOUTS[layout]
        path = job(ranks, resume, parallelism=parallelism)
        results = on_mesh(read_job(path).spec.degrees, _train, path)
        return output_folder(path) / "checkpoints" / "step-3", losses(path), assembled(results)

    whole = {layout: trained(layout) for layout in LAYOUTS}
    names = list(LAYOUTS)
    for source, target in zip(names, names[1:] + names[:1], strict=True):
        checkpoint, _, _ = whole[source]
        _, after, restored = trained(target, checkpoint)
        stored = _read(checkpoint)
        assert stored.keys() == restored.keys()
        assert all(torch.equal(stored[name], restored[name]) for name in stored), (source, target)
        # Layouts sum the gradients of the same 8 sequences in other orders, each at most 2⁻²¹ off, and
        # likewise their norm. ``complaints`` derives the effect over 6 steps.
        shift = 6 * 2 * LEARNING_RATE / EPSILON * 2.0**-20
        for loss, one in zip(after, whole[target][1][3:], strict=True):
            assert abs(loss - one) <= 2 * shift + 512 * 2.0**-24 * one, (source, target)


def _read(checkpoint: Path) -> dict[str, Tensor]:
    manifest = CheckpointManifest.model_validate_json((checkpoint / "manifest.json").read_bytes())
    return {
        name: read_tensor(checkpoint, manifest, name, entry.shape) for name, entry in manifest.tensors.items()
    }
