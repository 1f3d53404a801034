"""What keeps the ranks of a large run in step, checked in complete trainings:
garbage collection, ranks' timings, and process groups."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist

from tests.trainer.jobs import events, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.observe.step_timer import Timing
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime import garbage_collection
from trainwright_trainer.training.build import build
from trainwright_trainer.training.loop import train

STEPS = 12
ALL_EVERY_STEPS = 5


class Record(NamedTuple):
    """What one rank records during a training."""

    enabled: list[bool]
    """Whether automatic garbage collection was enabled, at the start of each step."""

    collected: list[tuple[int, int]]
    """The step after which garbage was collected, and the generation, while automatic collection was disabled."""

    groups: list[tuple[int, ...]]
    """Ranks of each process group that it created."""


def _record(mesh: Mesh, job_file: Path) -> Record:
    seen = Record([], [], [])
    make = dist.new_group

    def counted(ranks: list[int], **given: Any) -> Any:
        seen.groups.append(tuple(ranks))
        return make(ranks, **given)

    dist.new_group = counted
    garbage_collection.FULL_COLLECTION_EVERY_STEPS = ALL_EVERY_STEPS
    training = build(read_job(job_file), job_file, make_mesh(mesh.rank, mesh.degrees, mesh.device))
    step = training.engine.step

    def watched(*given: Any) -> Any:
        seen.enabled.append(gc.isenabled())
        return step(*given)

    def record(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and seen.enabled and not gc.isenabled():
            seen.collected.append((len(seen.enabled), about["generation"]))

    training.engine.step = watched
    gc.callbacks.append(record)
    train(training)
    gc.callbacks.remove(record)
    return seen


def _records(tmp_path: Path, data: Path, degrees: Degrees) -> tuple[list[Record], Path]:
    axes = {"data": degrees.data, "tensor": degrees.tensor, "pipeline": degrees.pipeline}
    schedule = {"steps": STEPS, "warmup_steps": 4}
    job_file = write_job(tmp_path, data, degrees.ranks, parallelism=axes, schedule=schedule)
    output_folder(job_file).mkdir()
    return on_mesh(degrees, _record, job_file), job_file


def test_ranks_collect_garbage_after_the_same_steps_and_never_within_one(tmp_path: Path, data: Path) -> None:
    lives, _ = _records(tmp_path, data, Degrees(replicas=2))
    expected = [(step, 0 if step % ALL_EVERY_STEPS else 2) for step in range(1, STEPS + 1)]
    for lived in lives:
        assert lived.enabled == [False] * STEPS
        assert lived.collected == expected


@pytest.mark.slow(target="layouts")
def test_events_of_every_tenth_step_contain_the_seconds_of_every_rank(tmp_path: Path, data: Path) -> None:
    _, job_file = _records(tmp_path, data, Degrees(replicas=2))
    series = {
        line["step"]: {name for name in line["values"] if name.startswith("rank_seconds/")}
        for line in events(job_file, "step")
    }
    every = {f"rank_seconds/{rank}:{phase}" for rank in range(2) for phase in Timing}
    assert series == {step: every if step % 10 == 0 else set() for step in range(1, STEPS + 1)}


GROUPS = {
    "data": Degrees(replicas=4),
    "data and tensor": Degrees(replicas=2, tensor=2),
    "data and pipeline": Degrees(replicas=2, pipeline=2),
}


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", GROUPS)
def test_a_rank_creates_only_the_groups_that_its_layout_uses(tmp_path: Path, data: Path, layout: str) -> None:
    degrees = GROUPS[layout]
    lives, _ = _records(tmp_path, data, degrees)
    for rank, lived in enumerate(lives):
        mesh = make_mesh(rank, degrees, torch.device("cpu"))
        axes = (mesh.data, mesh.tensor, mesh.pipeline)
        assert len(lived.groups) == len(set(lived.groups))
        assert set(lived.groups) == {axis.global_ranks for axis in axes if 1 < axis.ranks < degrees.ranks}
