"""Trainings with ZeRO and FSDP as the tests run them: cases, what a rank reports, and how far it may be off.

A case trains a small model, so that its bounds can be derived: four layers 32 wide, a batch of 8 sequences of
32 tokens in micro batches of one, so that every rank accumulates gradients. Gradients are clipped in every
step, and travel in several buckets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer.jobs import resume_from, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import Slice
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.parallel.data import gradient_buckets
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import Training, build

STEPS = 5
LEARNING_RATE = 3e-3
EPSILON = 1e-3
BUCKET_BYTES = 16_384

BASE: dict[str, Any] = {
    "model": {"layers": 4},
    "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 8},
    "optimizer": {"learning_rate": LEARNING_RATE, "epsilon": EPSILON, "clip_norm": 0.5},
    "schedule": {"steps": 6, "warmup_steps": 1},
    "checkpoint": {"every_steps": 3},
    "validation": {"every_steps": 6, "sequences": 8},
}

# An element of a gradient is a sum over the 256 tokens of the batch, and about ten matmuls follow one
# another in each of four layers, each a sum of at most as many terms: another order changes at most 256 ·
# 2⁻²⁴ of the magnitudes in each.
GRADIENT_BOUND = 40 * 256 * 2.0**-24


@dataclass
class TensorShard:
    """A rank's tensor and its position in the full one."""

    box: Slice
    tensor: Tensor


@dataclass
class Learned:
    """What a rank reports after a few steps."""

    losses: list[float]
    norms: list[float]
    initial: dict[str, TensorShard]
    """State before the first step."""

    first: dict[str, TensorShard]
    """State after it: first moments are the clipped gradients times 1 - beta1."""

    last: dict[str, TensorShard]
    validation: float


def learn(mesh: Mesh, job_file: Path, steps: int = STEPS, fault: Callable[[], None] | None = None) -> Learned:
    gradient_buckets.BUCKET_BYTES = BUCKET_BYTES
    if fault is not None:
        fault()
    training = start(mesh, job_file)
    initial = tensor_shards(training)
    numbers = [one_step(training, training.step + 1)]
    first = tensor_shards(training)
    numbers += [one_step(training, training.step + step) for step in range(2, steps + 1)]
    return Learned(
        [number.loss for number in numbers],
        [number.grad_norm for number in numbers],
        initial,
        first,
        tensor_shards(training),
        validation_loss(training),
    )


def start(mesh: Mesh, job_file: Path) -> Training:
    output_folder(job_file).mkdir(exist_ok=True)
    return build(read_job(job_file), job_file, mesh)


def one_step(training: Training, step: int) -> Any:
    clock = StepTimer(training.mesh.device)
    clock.start()
    return training.engine.step(training.loader.micro_batches(step), LEARNING_RATE, clock)


def validation_loss(training: Training) -> float:
    mine = np.arange(training.mesh.data.rank, 8, training.mesh.data.ranks, dtype=np.uint64)
    return training.engine.mean_loss(read_batches(training.validation, mine, 1))


def tensor_shards(training: Training) -> dict[str, TensorShard]:
    """What this rank would write to a checkpoint."""
    return {
        item.name: TensorShard(item.box, item.tensor.detach().clone())
        for item in training.engine.updater.state()
    }


def assembled(results: list[dict[str, TensorShard]]) -> dict[str, Tensor]:
    """Assemble full tensors from the shards of all ranks, which must fill them, each element once."""
    wholes = assembled_replicas(results)
    for name, whole in wholes.items():
        elements = sum(result[name].tensor.numel() for result in results if name in result)
        assert elements == whole.numel(), f"two ranks write a part of {name}"
    return wholes


def assembled_replicas(results: list[dict[str, TensorShard]]) -> dict[str, Tensor]:
    """Assemble full tensors from shards that must fill them; elements that several ranks have must be equal on
    them."""
    wholes: dict[str, Tensor] = {}
    for result in results:
        for name, shard in result.items():
            whole = wholes.setdefault(name, torch.full(shard.box.full_shape, torch.nan))
            there = whole[shard.box.slices]
            assert bool((there.isnan() | (there == shard.tensor)).all()), f"ranks differ in {name}"
            whole[shard.box.slices] = shard.tensor
    unfilled = [name for name, whole in wholes.items() if whole.isnan().any()]
    assert not unfilled, f"parts do not fill {unfilled[0]}"
    return wholes


def farthest(results: dict[str, Tensor], wanted: dict[str, Tensor], kind: str = "") -> float:
    """Greatest relative difference of a tensor whose name starts with ``kind``, in the L2 norm."""
    assert results.keys() == wanted.keys()
    names = [name for name in wanted if name.startswith(kind)]
    assert names
    return max(float((results[name] - wanted[name]).norm() / wanted[name].norm()) for name in names)


GRADIENTS = "optimizer.exp_avg."


def job_writer(data: Path, folders: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes the job folder of a run on ``ranks`` ranks."""

    def write(ranks: int, resume: Path | None = None, **sections: Any) -> Path:
        spec = {name: BASE.get(name, {}) | sections.get(name, {}) for name in BASE | sections}
        folder = folders.mktemp("job")
        return write_job(folder, data, ranks, resume_from(resume, folder) if resume else None, **spec)

    return write


def run(job_file: Path, *arguments: Any) -> list[Learned]:
    results = on_mesh(read_job(job_file).spec.degrees, learn, job_file, *arguments)
    assert all(isinstance(result, Learned) for result in results)
    return results


CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "stage 1 over 2": (2, {"zero_stage": 1}),
    "stage 2 over 2": (2, {"zero_stage": 2}),
    "stage 3 over 2": (2, {"zero_stage": 3}),
    "stage 1 over 4": (4, {"zero_stage": 1}),
    "stage 2 over 4": (4, {"zero_stage": 2}),
    "stage 3 over 4": (4, {"zero_stage": 3}),
    "stage 1, 2 replicas of 2": (4, {"zero_stage": 1, "shard": 2}),
    "stage 2, 2 replicas of 2": (4, {"zero_stage": 2, "shard": 2}),
    "stage 3, 2 replicas of 2": (4, {"zero_stage": 3, "shard": 2}),
    "stage 1, tensor 2": (4, {"zero_stage": 1, "tensor": 2}),
    "stage 2, tensor 2": (4, {"zero_stage": 2, "tensor": 2}),
    "stage 3, tensor 2": (4, {"zero_stage": 3, "tensor": 2}),
    "stage 1, pipeline 2": (4, {"zero_stage": 1, "pipeline": 2}),
    "stage 2, pipeline 2": (4, {"zero_stage": 2, "pipeline": 2}),
    "stage 2, zero bubble": (4, {"zero_stage": 2, "pipeline": 2, "schedule": "zbv"}),
}


def complaints(results: list[Learned], wanted: Learned) -> list[str]:
    """How the ranks differ from one process, or from each other, beyond rounding."""
    found = []
    first, expected = assembled([result.first for result in results]), assembled([wanted.first])
    off = farthest(first, expected, GRADIENTS)
    if not off <= GRADIENT_BOUND:
        found.append(f"gradients are {off:.1e} off")
    if any(result.losses != results[0].losses or result.norms != results[0].norms for result in results):
        found.append("ranks differ in losses or norms")
    if results[0].norms[0] != pytest.approx(wanted.norms[0], rel=GRADIENT_BOUND):
        found.append("the norm differs")
    # AdamW moves a weight by at most 2 · rate / epsilon times the error of its gradient. Gradients are
    # clipped to a norm of a half, so in five steps all weights together are off by 5 · 3 · off, and a loss by
    # that times the norm of its gradient, below 2 here. Computing gradients at weights that are off adds as
    # much again. In addition, a loss is a mean over 256 tokens of logarithms of sums over 256.
    shift = STEPS * 2 * LEARNING_RATE / EPSILON * max(min(off, GRADIENT_BOUND), 2.0**-23)
    for loss, one in zip(results[0].losses, wanted.losses, strict=True):
        if not abs(loss - one) <= 2 * shift + 512 * 2.0**-24 * one:
            found.append(f"a loss is {abs(loss - one):.1e} off")
    if not abs(results[0].validation - wanted.validation) <= 2 * shift + 512 * 2.0**-24 * wanted.validation:
        found.append("the validation loss differs")
    return found


def uneven_losses(training: Training) -> list[float]:
    """Validation losses for a number of sequences
    that gives data ranks unequal numbers of batches, or none."""
    losses = []
    for count in (1, 5):
        mine = np.arange(training.mesh.data.rank, count, training.mesh.data.ranks, dtype=np.uint64)
        losses.append(training.engine.mean_loss(read_batches(training.validation, mine, 2)))
    return losses
