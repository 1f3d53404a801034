"""What a rank of a cell does, and what it tells: losses, norms, and its pieces of every gradient, in some of the steps.

Gradients are asked for where each kind of training has them to the end: in what the first moments took in of them, or, in
FP8, as the codes that are kept. So they are what the weights are moved by, all sums and clipping included.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.parity.cases import LEARNING_RATE, Cell
from tests.parity.faults import FAULTS
from tests.trainer.jobs import write_job
from trainwright.contracts.job_spec import output_folder
from trainwright_trainer.build import Training, build
from trainwright_trainer.ends import read_job
from trainwright_trainer.fp8.formats import widen
from trainwright_trainer.fp8.layout import view_of
from trainwright_trainer.fp8.updater import FP8Updater
from trainwright_trainer.main import main
from trainwright_trainer.mesh import Mesh, make_mesh
from trainwright_trainer.observe.throughput import StepClock
from trainwright_trainer.parts import Slice

_FIRST_MOMENT = "optimizer.exp_avg."


class Piece(NamedTuple):
    """A part of a gradient; arrays travel between processes as bytes, tensors as open files."""

    box: Slice
    numbers: NDArray[np.float32]


class Told(NamedTuple):
    """What one rank knows."""

    losses: list[float]
    norms: list[float]
    gradients: dict[int, dict[str, Piece]]
    """By step, then by canonical name of the weight."""


class Task(NamedTuple):
    """One training of a few steps."""

    job_file: Path
    steps: int
    fault: str | None = None
    every_step: bool = False
    """Whether to tell the gradients of all steps; else of the first and the last."""


def learn_all(mesh: Mesh, tasks: list[Task]) -> list[Told | str]:
    """One training after the other on the same ranks, each over the mesh that its job says.

    What is asserted in the trainer and fails is told in words: that is how some of the planted faults end.
    """
    return [_learn_or_complain(mesh, task) for task in tasks]


def _learn_or_complain(world: Mesh, task: Task) -> Told | str:
    with FAULTS[task.fault]() if task.fault else nullcontext():
        try:
            return learn(world, task)
        except AssertionError as error:
            if task.fault is None:
                raise
            return str(error)


def learn(world: Mesh, task: Task) -> Told:
    job = read_job(task.job_file)
    output_folder(task.job_file).mkdir(exist_ok=True)
    training = build(job, task.job_file, make_mesh(world.rank, job.spec.degrees, world.device))
    told = Told([], [], {})
    for step in range(1, task.steps + 1):
        looks = task.every_step or step in (1, task.steps)
        before = _first_moments(training) if looks else {}
        clock = StepClock(world.device)
        clock.start()
        numbers = training.engine.step(training.loader.micro_batches(step), LEARNING_RATE, clock)
        told.losses.append(numbers.loss)
        told.norms.append(numbers.grad_norm)
        if looks:
            told.gradients[step] = _gradients(training, before)
    return told


def _gradients(training: Training, before: dict[str, Piece]) -> dict[str, Piece]:
    """Of the step just made; ``before`` are the first moments before it."""
    updater = training.engine.updater
    if isinstance(updater, FP8Updater):
        return dict(_stored_codes(updater))
    kept = training.spec.optimizer.beta1
    return {
        name: Piece(box, ((numbers - kept * before[name].numbers) / (1 - kept)).astype(np.float32))
        for name, (box, numbers) in _first_moments(training).items()
    }


def _first_moments(training: Training) -> dict[str, Piece]:
    """Those that this rank answers for."""
    updater = training.engine.updater
    if isinstance(updater, FP8Updater):
        return {}
    return {
        one.name.removeprefix(_FIRST_MOMENT): Piece(one.box, _array(one.tensor))
        for one in updater.state()
        if one.name.startswith(_FIRST_MOMENT)
    }


def _stored_codes(updater: FP8Updater) -> Iterator[tuple[str, Piece]]:
    """The numbers that the gradients' codes stand for."""
    gradients, layout = updater.gradients, updater.layout
    first = layout.first_rows()
    for tenant in layout.held:
        codes = view_of(gradients.codes, first[tenant.name], tenant)
        numbers = widen(codes, torch.float32) * gradients.scale[tenant.place]
        yield tenant.name, Piece(tenant.box, _array(numbers))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().to("cpu", torch.float32, copy=True).numpy()
    return array


def write_cell(folder: Path, data: Path, cell: Cell, **more: Any) -> Path:
    """The job's file of ``cell``; ``more`` is laid over its sections."""
    spec = {name: section | more.get(name, {}) for name, section in cell.spec.items()}
    return write_job(folder, data, cell.ranks, **spec)


def prepare(folder: Path) -> Path:
    """Byte-level shards of some thousands of invented words."""
    draw = random.Random(0)
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "sees", "nothing"]
    folder.mkdir(parents=True, exist_ok=True)
    texts = folder / "texts.jsonl"
    texts.write_text(
        "".join(json.dumps({"text": " ".join(draw.choices(words, k=40))}) + "\n" for _ in range(300))
    )
    out = folder / "data"
    given = ["--out", str(out), "--tokenizer", "bytes", "--validation-fraction", "0.1"]
    assert main(["prepare", str(texts), *given]) == 0
    return out
