"""A run resumes in another layout: the same state is restored from any layout, and the same losses follow.

For a pair of layouts A and B, a run in B is saved halfway and continues. A resumes from that state, saves it
at once and continues too; B resumes from what A saved. Nothing was computed in between, so B must repeat bit for bit
what it computed without the detour. A sums in another order than B, and its losses stay close.

All trainings of a table run in one set of processes. A rank that a layout does not use waits.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.trainer.jobs import resume_from, write_job
from tests.trainer.ranks import on_mesh, on_ranks
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.checkpoint.host_memory import HostMemory
from trainwright_trainer.checkpoint.save import Origin, join_writers, save_checkpoint
from trainwright_trainer.checkpoint.snapshot import config_digest, take_snapshot, training_position
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.fp8.compute.formats import amax_of, scale_for, widen
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.optim.learning_rate import learning_rate_at
from trainwright_trainer.optim.optimizer import set_updates
from trainwright_trainer.optim.replicated_updater import ReplicatedUpdater
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import Training, build

SAVED, LAST = 3, 8
"""Steps: the state is saved after the first, and losses are compared up to the second."""

LEARNING_RATE = 3e-3

LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "one": (1, {}),
    "data 2": (2, {}),
    "data 4": (4, {}),
    "tensor 2": (2, {"tensor": 2}),
    "data 2, tensor 2": (4, {"tensor": 2}),
    "stages 1,3": (2, {"pipeline": 2, "stages": [1, 3]}),
    "stages 3,1, data 2": (4, {"pipeline": 2, "stages": [3, 1]}),
    "stages 2,2, tensor 2": (4, {"pipeline": 2, "stages": [2, 2], "tensor": 2}),
    "interleaved": (2, {"pipeline": 2, "schedule": "interleaved"}),
    "zbv": (2, {"pipeline": 2, "schedule": "zbv"}),
    "zero 1": (2, {"zero_stage": 1}),
    "zero 2": (4, {"zero_stage": 2}),
    "zero 3": (2, {"zero_stage": 3}),
}
"""Ranks and the section of the spec."""

NARROW = {"layers": 4, "width": 64, "heads": 4, "kv_heads": 2, "feed_forward": 160}
"""Halves of its rows of 64 and 160 split blocks of 128."""

WIDE = {"layers": 4, "width": 256, "heads": 4, "kv_heads": 2, "feed_forward": 256}
"""Halves of its rows are blocks of 128."""


class Table(NamedTuple):
    """Layouts; each forms a pair with the next one."""

    ranks: int
    """The ranks of each layout except the single process.
    torch could not connect ranks that had created different process groups before."""

    precision: dict[str, Any]
    layouts: tuple[str, ...]
    noise: float
    """Relative change in a gradient's norm when it is summed in another order."""

    model: dict[str, Any] = NARROW
    rounded: bool = False
    """Whether blocks are split, so that some values of the state change."""


def fp8(**recipe: Any) -> dict[str, Any]:
    return {"kind": "fp8", "fp8": recipe}


# About ten matmuls in each of four layers, each a sum over at most the 128 tokens of the batch: worst-case
# rounding.
FP32_NOISE = 40 * 128 * 2.0**-24
# Four places per layer where two terms and their sum are each rounded to 2^-9, forward and backward; as
# squares.
BF16_NOISE = (2 * 4 * 4 * 3) ** 0.5 * 2.0**-9
# What two reductions in E4M3 may lose, 25 dB each, and the error of what surrounds them.
FP8_NOISE = 2**0.5 * 10 ** (-25 / 20) + BF16_NOISE

TABLES = {
    "fp32": Table(
        2, {"kind": "fp32"}, ("one", "tensor 2", "stages 1,3", "interleaved", "zero 3"), FP32_NOISE
    ),
    "fp32 on 4 ranks": Table(
        4,
        {"kind": "fp32"},
        ("data 4", "data 2, tensor 2", "stages 3,1, data 2", "stages 2,2, tensor 2", "zero 2"),
        FP32_NOISE,
    ),
    "bf16": Table(2, {"kind": "bf16"}, ("tensor 2", "zbv", "zero 1"), BF16_NOISE),
    "O1": Table(2, fp8(level="O1"), ("data 2", "tensor 2", "stages 1,3"), FP8_NOISE),
    "O2": Table(
        4,
        fp8(level="O2", amax="delayed"),
        ("one", "data 2, tensor 2", "stages 2,2, tensor 2", "data 4"),
        FP8_NOISE,
    ),
    "O3": Table(4, fp8(level="O3"), ("one", "data 2, tensor 2", "data 4", "stages 3,1, data 2"), FP8_NOISE),
    "O2, blocks": Table(2, fp8(level="O2", moments="block"), ("one", "tensor 2", "zbv"), FP8_NOISE, WIDE),
    "O2, split blocks": Table(
        2, fp8(level="O2", moments="block"), ("one", "tensor 2", "data 2"), FP8_NOISE, rounded=True
    ),
}


# `make parity-table ARGS=--layouts` records the results.
pytestmark = pytest.mark.slow(target="layouts")


class TrainingResult(NamedTuple):
    """What one training of the tour reports."""

    losses: list[float]
    norm: float
    """The largest norm of gradients."""

    rounded: int
    """Tensors that were rounded again when the state was restored."""


class Pair(NamedTuple):
    names: tuple[str, str]
    straight: TrainingResult
    """Trained with B throughout."""

    detour: TrainingResult
    """Trained with B, from the checkpoint of A."""

    crossed: TrainingResult
    """Trained with A, from the checkpoint of B."""


class Tour:
    """Trainings one after the other on the ranks of ``world``, or on the first few of them."""

    def __init__(self, world: Mesh, folder: Path, data: Path, table: Table) -> None:
        self._world = world
        self._folder = folder
        self._data = data
        self._table = table
        self._made = 0

    def pairs(self) -> list[Pair]:
        straight: dict[str, tuple[TrainingResult, Path]] = {}
        found = []
        for layout in self._table.layouts:
            if layout not in straight:
                straight[layout] = self.go(layout, None, SAVED, LAST)
        for a, b in pairwise(self._table.layouts):
            gone, saved = straight[b]
            crossed, handed_on = self.go(a, saved, SAVED, LAST)
            detour, _ = self.go(b, handed_on, 0, LAST)
            found.append(Pair((a, b), gone._replace(losses=gone.losses[SAVED:]), detour, crossed))
        return found

    def go(
        self,
        layout: str,
        source: Path | None,
        save_at: int,
        last: int,
        plant: Callable[[Training], None] = lambda training: None,
        cursor: int = 0,
    ) -> tuple[TrainingResult, Path]:
        """Train in ``layout`` from ``source`` to step ``last``.
        Returns the path of the state saved at ``save_at``."""
        self._made += 1
        ranks, parallelism = LAYOUTS[layout]
        folder = self._folder / f"{self._made}"
        job_file = folder / "job.json"
        if self._world.rank == 0:
            job = resume_from(source, folder) if source else {}
            _write(folder, self._data, ranks, job, parallelism, self._table)
        dist.barrier()
        gone = TrainingResult([], 0.0, 0)
        if self._world.rank < ranks:
            job_spec = read_job(job_file)
            mesh = make_mesh(self._world.rank, job_spec.spec.degrees, self._world.device)
            training = build(job_spec, job_file, mesh)
            plant(training)
            gone = _train(training, folder, save_at, last, cursor)
        dist.barrier()
        return gone, folder / f"step-{save_at}"


def _write(
    folder: Path, data: Path, ranks: int, job: dict[str, Any], parallelism: dict[str, Any], table: Table
) -> None:
    job_file = write_job(
        folder,
        data,
        ranks,
        job=job,
        model=table.model | {"tied_embeddings": False},
        batch={"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 4},
        optimizer={"learning_rate": LEARNING_RATE},
        precision=table.precision,
        parallelism=parallelism,
    )
    output_folder(job_file).mkdir()


def _train(training: Training, folder: Path, save_at: int, last: int, cursor: int) -> TrainingResult:
    losses, norms = [], [0.0]
    updater = training.engine.updater
    rounded = updater.requantized_tensors if isinstance(updater, FP8Updater) else 0
    if training.step == save_at:
        _save(training, folder, save_at)
    for step in range(training.step + 1, last + 1):
        timer = StepTimer(training.mesh.device)
        timer.start()
        learning_rate = learning_rate_at(step, LEARNING_RATE, training.spec.schedule)
        numbers = training.engine.step(training.loader.micro_batches(step + cursor), learning_rate, timer)
        losses.append(numbers.loss)
        norms.append(numbers.grad_norm)
        if step == save_at:
            _save(training, folder, step)
    return TrainingResult(losses, max(norms), rounded)


def _save(training: Training, folder: Path, step: int) -> None:
    snapshot = take_snapshot(training.engine.updater, training_position(step, training.spec), HostMemory())
    snapshot.state.update(training.skipped_steps.scalars())
    origin = Origin(config_digest(training.spec), training.mesh.ranks, None)
    save_checkpoint(folder, snapshot, origin, join_writers(training.mesh))


def _pairs(world: Mesh, folder: Path, data: Path, table: Table) -> list[Pair]:
    return Tour(world, folder, data, table).pairs()


class Found(NamedTuple):
    """Results for a pair."""

    apart: float
    """The largest difference in loss between A, which resumed from the state that B saved,
    and B; nats per token."""

    drift: float
    """The same between B after the detour and B without it; 0 if all losses are equal bit for bit."""

    allowed: float
    rounded: bool
    """Whether blocks were split, and therefore some values rounded again."""

    wrong: list[str]


def judged(table: Table, pair: Pair) -> Found:
    _, straight, detour, crossed = pair
    # As in ``rounding_bound`` of the FP8 tests: Adam's updates differ by the noise of gradients, in a random
    # direction.
    bound = 3 * LEARNING_RATE * table.noise * (LAST - SAVED) ** 0.5 * straight.norm
    apart, drift = (
        [abs(a - b) for a, b in zip(gone.losses, straight.losses, strict=True)] for gone in (crossed, detour)
    )
    assert len(apart) == len(drift) == LAST - SAVED
    rounded = bool(detour.rounded or crossed.rounded)
    allowed = bound + _of_a_loss(table)
    faults = {
        "the losses of the other layout differ too much": not all(number < allowed for number in apart),
        "numbers were rounded again": rounded and not table.rounded,
        "numbers rounded again are too far off": rounded and not all(number < bound for number in drift),
        "not the same bits after the detour": not rounded and detour.losses != straight.losses,
    }
    wrong = [words for words, is_so in faults.items() if is_so]
    return Found(max(apart), max(drift), allowed, rounded, wrong)


def tour(folder: Path, data: Path, table: Table, patience_seconds: int = 280) -> list[Pair]:
    """All pairs of ``table``, trained on ranks of this machine."""
    degrees = Degrees(replicas=table.ranks)
    pairs: list[Pair] = on_mesh(degrees, _pairs, folder, data, table, patience_seconds=patience_seconds)[0]
    assert [pair.names for pair in pairs] == list(pairwise(table.layouts))
    return pairs


@pytest.mark.parametrize("name", TABLES)
def test_a_run_continues_in_another_layout(tmp_path: Path, data: Path, name: str) -> None:
    table = TABLES[name]
    found = {pair.names: judged(table, pair) for pair in tour(tmp_path, data, table)}
    assert not {names: one.wrong for names, one in found.items() if one.wrong}
    assert table.rounded is any(item.rounded for item in found.values())


def _of_a_loss(table: Table) -> float:
    """Change in one loss when it is computed in another order:
    relative to ln 257 nats, like gradients but in one pass."""
    return 5.6 * table.noise / 8


def _drop_moments(training: Training) -> None:
    for held in training.engine.updater.state():
        if held.name.startswith("optimizer.exp_avg"):
            held.tensor.zero_()


def _swap_moments(training: Training) -> None:
    updater = training.engine.updater
    if isinstance(updater, FP8Updater):
        _swap_stored_moments(updater)
        return
    held = {item.name: item.tensor for item in updater.state()}
    for name, first in held.items():
        if name.startswith("optimizer.exp_avg."):
            _swap(first, held[name.replace("exp_avg.", "exp_avg_sq.")])


def _swap_stored_moments(updater: FP8Updater) -> None:
    """Swap values instead of codes: each moment keeps its format and gets scales for its new values."""
    first, second, local_range = (
        updater.optimizer.first,
        updater.optimizer.second,
        updater.layout.first_rows(),
    )
    _swap(first.amax, second.amax)
    if first.format == second.format:
        _swap(first.codes, second.codes)
        _swap(first.scale, second.scale)
        return
    for slot in updater.layout.local_slots:
        rows, place = slice(local_range[slot.name], local_range[slot.name] + slot.rows), slot.index
        reals = [widen(kind.codes[rows], torch.float32) * kind.scale[place] for kind in (second, first)]
        for kind, real in zip((first, second), reals, strict=True):
            kind.scale[place] = scale_for(amax_of(real), kind.format.dtype)
            kind.codes[rows] = (real / kind.scale[place]).to(kind.format.dtype)


def _swap(one: Tensor, other: Tensor) -> None:
    kept = one.clone()
    one.copy_(other)
    other.copy_(kept)


def _miscount(training: Training) -> None:
    updater = training.engine.updater
    if isinstance(updater, FP8Updater):
        updater.optimizer.updates -= 1
    else:
        assert isinstance(updater, ReplicatedUpdater)
        set_updates(updater.optimizer, SAVED - 1)


def _double_a_scale(prefix: str) -> Callable[[Training], None]:
    def plant(training: Training) -> None:
        for held in training.engine.updater.state():
            if held.name.startswith(f"{prefix}.layers.0.attention.output.weight"):
                held.tensor.mul_(2)

    return plant


A_STEP_LATER = "the data begin a step later"
PLANTED: dict[str, Callable[[Training], None]] = {
    A_STEP_LATER: lambda training: None,
    "moments are dropped": _drop_moments,
    "moments are swapped": _swap_moments,
    "updates are miscounted": _miscount,
}
OF_SCALES: dict[str, Callable[[Training], None]] = {
    "a master's scale is off by 2": _double_a_scale("model_scale"),
    "a first moment's scale is off by 2": _double_a_scale("optimizer.exp_avg_scale"),
    "a second moment's scale is off by 2": _double_a_scale("optimizer.exp_avg_sq_scale"),
}


def _spoilt(world: Mesh, folder: Path, data: Path, table: Table, faults: list[str]) -> dict[str, list[float]]:
    tour = Tour(world, folder, data, table)
    of_a, of_b = table.layouts
    _, saved = tour.go(of_a, None, SAVED, SAVED)
    found = {"nothing": tour.go(of_b, saved, 0, LAST)[0].losses}
    for name in faults:
        plant, cursor = (PLANTED | OF_SCALES)[name], int(name == A_STEP_LATER)
        found[name] = tour.go(of_b, saved, 0, LAST, plant, cursor)[0].losses
    return found


ALL = [*PLANTED, *OF_SCALES]
SPOILT: list[tuple[dict[str, Any], tuple[str, str], list[str]]] = [
    ({"kind": "fp32"}, ("data 2", "tensor 2"), list(PLANTED)),
    (fp8(level="O2"), ("data 2", "tensor 2"), ALL),
    (fp8(level="O2", moments="block"), ("data 2", "tensor 2"), ALL),
    ({"kind": "bf16"}, ("data 2", "zero 1"), ["moments are swapped"]),
    (fp8(level="O1"), ("tensor 2", "data 2"), ["moments are swapped"]),
    (fp8(level="O3"), ("tensor 2", "data 2"), ["moments are swapped"]),
]


@pytest.mark.parametrize(("precision", "layouts", "faults"), SPOILT, ids=[str(case[0]) for case in SPOILT])
def test_state_lost_in_a_layout_change_shows_in_the_losses(
    tmp_path: Path, data: Path, precision: dict[str, Any], layouts: tuple[str, str], faults: list[str]
) -> None:
    """Negative controls of the test above:
    all kinds of fault, and swapped moments in every format that stores them."""
    table = Table(2, precision, layouts, 0.0)
    found = on_ranks(2, _spoilt, tmp_path, data, table, faults)[0]
    right = found.pop("nothing")
    assert set(found) == set(faults)
    for name, losses in found.items():
        assert losses != right, name
