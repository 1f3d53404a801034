"""Pipeline trainings as the tests run them:
layouts, what a rank learned, and how close to one process it must be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch._inductor.config
from torch import Tensor

from tests.trainer.jobs import events, losses, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.data.token_shards import TokenStream
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build
from trainwright_trainer.training.loop import train

STEPS = 5
ROUNDS = 8
MODEL = {"layers": 8, "width": 32, "heads": 4, "kv_heads": 2, "tied_embeddings": False}
TIED = {"model": MODEL | {"tied_embeddings": True}}
SECTIONS: dict[str, Any] = {
    "model": MODEL,
    "batch": {"sequence_tokens": 16, "micro_sequences": 1, "global_sequences": ROUNDS},
    # Never reached: a norm that is summed over ranks differs in its last bit, and so would everything clipped
    # by it.
    "optimizer": {"learning_rate": 3e-3, "clip_norm": 1e3},
    "schedule": {"steps": STEPS, "warmup_steps": 1},
    "validation": {"every_steps": STEPS, "sequences": 7},
    "checkpoint": {"every_steps": STEPS},
}

ONE_F_ONE_B = {"schedule": "1f1b"}
INTERLEAVED = {"schedule": "interleaved", "stages": (1, 3, 2, 2)}
INTERLEAVED_ZERO_BUBBLE = {"schedule": "interleaved_zero_bubble", "stages": (1, 3, 2, 2)}
ZBV = {"schedule": "zbv", "stages": (1, 3, 2, 2)}

Fault = Callable[[], None]


class Learned(NamedTuple):
    """What a rank has after its last step."""

    weights: dict[str, Tensor]
    gradients: dict[str, Tensor]
    reads: int
    """How often it read sequences."""


def learn(mesh: Mesh, jobs: list[Path], fault: Fault | None = None) -> list[Learned]:
    """Train each job on this rank."""
    torch._inductor.config.compile_threads = 1  # a rank's process may have no children
    if fault is not None:
        fault()
    return [_learn(mesh, job_file) for job_file in jobs]


def _learn(mesh: Mesh, job_file: Path) -> Learned:
    reads = [0]
    read = TokenStream.read

    def counted(stream: TokenStream, *arguments: Any) -> Any:
        reads[0] += 1
        return read(stream, *arguments)

    TokenStream.read = counted
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    train(training)
    TokenStream.read = read
    named = dict(training.engine.model.named_parameters())
    return Learned(
        {name: weight.detach().clone() for name, weight in named.items()},
        {name: weight.grad.clone() for name, weight in named.items() if weight.grad is not None},
        reads[0],
    )


def job(
    folder: Path, data: Path, ranks: int = 1, parallelism: dict[str, Any] | None = None, **sections: Any
) -> Path:
    return write_job(folder, data, ranks=ranks, parallelism=parallelism or {}, **(SECTIONS | sections))


def staged(folder: Path, data: Path, degrees: Degrees, parallelism: dict[str, Any], **sections: Any) -> Path:
    return job(folder, data, degrees.ranks, {"pipeline": degrees.pipeline} | parallelism, **sections)


def validation(job_file: Path) -> list[float]:
    return [event["values"]["validation_loss"] for event in events(job_file, "validation")]


def run(
    degrees: Degrees, jobs: list[Path], fault: Fault | None = None
) -> list[tuple[Path, tuple[Learned, ...]]]:
    """Train ``jobs`` one after the other. Returns each with what its ranks learned."""
    by_rank = on_mesh(degrees, learn, jobs, fault)
    return list(zip(jobs, zip(*by_rank, strict=True), strict=True))


def assert_equal(job_file: Path, ranks: tuple[Learned, ...], like: Path, whole: Learned) -> None:
    """Losses, gradients and weights are equal bit for bit."""
    name = job_file.parent.name
    assert losses(job_file) == losses(like), name
    assert validation(job_file) == validation(like), name
    assert {weight for rank in ranks for weight in rank.weights} == set(whole.weights), name
    for rank in ranks:
        for weight, value in rank.weights.items():
            assert torch.equal(value, whole.weights[weight]), f"{name}: {weight}"
            assert torch.equal(rank.gradients[weight], whole.gradients[weight]), (
                f"{name}: gradient of {weight}"
            )


def assert_close(job_file: Path, like: Path) -> None:
    """Losses differ by no more than the order of float32 sums explains.

    A gradient is a sum of fewer than 2^8 terms here (8 micro batches of 16 tokens, over 2 ranks or 2 uses of
    a tied weight), so another order changes it by less than 2^8 · 2^-24 = 2^-16 of its terms. AdamW moves a
    weight by the learning rate times a ratio of gradients, which is off by as much; so is an update's effect
    on the loss, at most a tenth of it here. Five updates: 5 · 0.1 · 2^-16 of the loss.
    """
    assert losses(job_file) == pytest.approx(losses(like), rel=0.5 * 2**-16)
    assert validation(job_file) == pytest.approx(validation(like), rel=0.5 * 2**-16)


Whole = Callable[..., tuple[Path, Learned]]
"""Trains a job in one process, once for equal sections."""


def whole_models(data: Path, folders: pytest.TempPathFactory) -> Whole:
    done: dict[str, tuple[Path, Learned]] = {}

    def given(**sections: Any) -> tuple[Path, Learned]:
        key = repr(sections)
        if key not in done:
            job_file = job(folders.mktemp("whole"), data, **sections)
            done[key] = job_file, on_mesh(Degrees(), learn, [job_file])[0][0]
        return done[key]

    return given


def started_timer() -> StepTimer:
    clock = StepTimer(torch.device("cpu"))
    clock.start()
    return clock
