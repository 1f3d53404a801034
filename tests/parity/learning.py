"""What a rank of a cell trains and reports: losses, norms, and its slices of every gradient in some of the
steps.

Gradients are read where each kind of training has their final values: from the change in the first moments
or, in FP8, from the stored codes. So they are what the weights are updated with, after all sums and clipping.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.parity.cases import LEARNING_RATE, Cell
from tests.parity.faults import FAULTS
from tests.trainer.jobs import write_job
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Coordinates, EngineKind
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.distributed.shard_spec import Slice
from trainwright_trainer.fp8.compute.formats import widen
from trainwright_trainer.fp8.state.row_layout import view_of
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.main import main
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training import engine
from trainwright_trainer.training.build import Training, build

_FIRST_MOMENT = "optimizer.exp_avg."


class TensorShard(NamedTuple):
    """A slice of a gradient. Arrays travel between processes as bytes, tensors as open files."""

    box: Slice
    numbers: NDArray[np.float32]


class RankResult(NamedTuple):
    """What one rank reports."""

    losses: list[float]
    norms: list[float]
    gradients: dict[int, dict[str, TensorShard]]
    """Gradients by step, then by canonical name of the weight."""

    own_losses: list[float]
    """This rank's share of each loss before the ranks sum them; empty where DeepSpeed runs the passes."""

    line: Coordinates
    """The rank's tensor axis, given by the coordinates of the first rank of that axis."""


class Task(NamedTuple):
    """One training of a few steps."""

    job_file: Path
    steps: int
    fault: str | None = None
    every_step: bool = False
    """Whether to report the gradients of all steps; otherwise those of the first and the last."""


def learn_all(mesh: Mesh, tasks: list[Task]) -> list[RankResult | str]:
    """Run one training after the other on the same ranks, each over the mesh that its job specifies.

    A failed assertion in the trainer is returned as text: some of the injected faults end that way.
    """
    return [_learn_or_report(mesh, task) for task in tasks]


def _learn_or_report(world: Mesh, task: Task) -> RankResult | str:
    with FAULTS[task.fault]() if task.fault else nullcontext():
        try:
            return learn(world, task)
        except AssertionError as error:
            if task.fault is None:
                raise
            return str(error)


def learn(world: Mesh, task: Task) -> RankResult:
    job = read_job(task.job_file)
    output_folder(task.job_file).mkdir(exist_ok=True)
    mesh = make_mesh(world.rank, job.spec.degrees, world.device)
    training = build(job, task.job_file, mesh)
    result = RankResult([], [], {}, [], replace(mesh.coordinates, tensor=0))
    with _recorded_losses(result.own_losses):
        _steps(training, task, result)
    expected = 0 if job.spec.parallelism.engine is EngineKind.DEEPSPEED else task.steps
    assert len(result.own_losses) == expected, "a rank's own losses were not recorded"
    return result


def _steps(training: Training, task: Task, result: RankResult) -> None:
    for step in range(1, task.steps + 1):
        looks = task.every_step or step in (1, task.steps)
        before = _first_moments(training) if looks else {}
        clock = StepTimer(training.mesh.device)
        clock.start()
        numbers = training.engine.step(training.loader.micro_batches(step), LEARNING_RATE, clock)
        result.losses.append(numbers.loss)
        result.norms.append(numbers.grad_norm)
        if looks:
            result.gradients[step] = _gradients(training, before)


@contextmanager
def _recorded_losses(own_losses: list[float]) -> Iterator[None]:
    """Record what this rank contributes to the sum that is the step's loss."""
    given = engine.with_stop_flag

    def recorded(loss: Tensor, should_stop: engine.ShouldStop) -> Tensor:
        own_losses.append(loss.item())
        return given(loss, should_stop)

    with patch.object(engine, "with_stop_flag", recorded):
        yield


def _gradients(training: Training, before: dict[str, TensorShard]) -> dict[str, TensorShard]:
    """Gradients of the last step; ``before`` are the first moments before it."""
    updater = training.engine.updater
    if isinstance(updater, FP8Updater):
        return dict(_stored_codes(updater))
    kept = training.spec.optimizer.beta1
    return {
        name: TensorShard(box, ((numbers - kept * before[name].numbers) / (1 - kept)).astype(np.float32))
        for name, (box, numbers) in _first_moments(training).items()
    }


def _first_moments(training: Training) -> dict[str, TensorShard]:
    """The first moments that this rank writes."""
    updater = training.engine.updater
    if isinstance(updater, FP8Updater):
        return {}
    return {
        item.name.removeprefix(_FIRST_MOMENT): TensorShard(item.box, _array(item.tensor))
        for item in updater.state()
        if item.name.startswith(_FIRST_MOMENT)
    }


def _stored_codes(updater: FP8Updater) -> Iterator[tuple[str, TensorShard]]:
    """The values that the gradients' codes represent."""
    gradients, layout = updater.gradients, updater.layout
    first = layout.first_rows()
    for slot in layout.local_slots:
        codes = view_of(gradients.codes, first[slot.name], slot)
        numbers = widen(codes, torch.float32) * gradients.scale[slot.index]
        yield slot.name, TensorShard(slot.box, _array(numbers))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.detach().to("cpu", torch.float32, copy=True).numpy()
    return array


def write_cell(folder: Path, data: Path, cell: Cell, **more: Any) -> Path:
    """Write the job file of ``cell``; ``more`` overrides its sections."""
    spec = {name: section | more.get(name, {}) for name, section in cell.spec.items()}
    return write_job(folder, data, cell.ranks, **spec)


def prepare(folder: Path) -> Path:
    """Byte-level shards of invented words in letters of one to four bytes, so that every part of the
    vocabulary occurs.

    With one-byte letters alone, the upper half of the vocabulary would occur in no text, and the tensor rank
    with these rows would have almost nothing to do.
    """
    draw = random.Random(0)
    words = [_word(draw) for _ in range(100)]
    folder.mkdir(parents=True, exist_ok=True)
    texts = folder / "texts.jsonl"
    texts.write_text(
        "".join(json.dumps({"text": " ".join(draw.choices(words, k=40))}) + "\n" for _ in range(300))
    )
    out = folder / "data"
    given = ["--out", str(out), "--tokenizer", "bytes", "--validation-fraction", "0.1"]
    assert main(["prepare", str(texts), *given]) == 0
    return out


def _word(draw: random.Random) -> str:
    ranges = draw.choices(_LETTERS, weights=(5, 1, 1, 1), k=4)
    return "".join(chr(draw.randrange(*item)) for item in ranges)


_LETTERS = ((0x21, 0x7F), (0xA1, 0x800), (0x800, 0xD800), (0x10000, 0x40000))
"""Code points of one, two, three and four bytes in UTF-8,
drawn so that about half of all bytes are of either kind."""
