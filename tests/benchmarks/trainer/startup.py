"""Row ``start-up``: seconds to the end of the first step on 2, 4, 8 and 16 ranks, by phase, compared with one rank.

    groups       until every axis of the mesh has been used once; a run makes only the groups that it uses
    build        until the training is built
    first step

Time starts after the rendezvous of all ranks; imports are part of row ``first-step``. A phase ends when the last rank ends it.
The bounds take into account that ranks that share a core cannot be faster than one after another. ``start-up-growth`` compares 16
ranks with two: the time may grow in proportion to the ranks, and not faster.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from tests.benchmarks.report.entries import Entry, at_most
from tests.parity.cases import CELLS, Cell
from tests.parity.learning import prepare, write_cell
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build

PHASES = ("groups", "build", "first step")
LAYOUTS = {
    1: Cell(1),
    2: CELLS["tensor 2"],
    4: CELLS["data 2 × tensor 2"],
    8: CELLS["data 2 × tensor 2 × pipeline 2"],
    16: replace(CELLS["data 2 × tensor 2 × pipeline 2"], ranks=16),
}
_LARGEST = 2.0
"""Relative to one rank's time, times the ranks that share a core."""


def start_up(toy: bool, folder: Path) -> dict[str, Entry]:
    """Seconds for each number of ranks, alternating with one rank; prints phases. ``start-up`` is for the most
    ranks."""
    data = prepare(folder / "start-up")
    entries: dict[str, Entry] = {}
    seconds: dict[int, float] = {}
    for ranks in (2, 4) if toy else (2, 4, 8, 16):
        timings: list[list[float]] = []
        alone: list[float] = []
        for turn in range(1 if toy else 3):
            alone.append(sum(_phases(folder / f"start-1-{ranks}-{turn}", data, 1)))
            timings.append(_phases(folder / f"start-{ranks}-{turn}", data, ranks))
        seconds[ranks] = median(sum(timing) for timing in timings)
        by_phase = (
            f"{name} {median(one):.2f} s"
            for name, one in zip(PHASES, zip(*timings, strict=True), strict=True)
        )
        print(f"  {ranks} ranks: {seconds[ranks]:.2f} s: {', '.join(by_phase)}")
        unit, shared = "s to a trained first step, peer: one rank", _ranks_per_core(ranks)
        entries[f"start-up-{ranks}-ranks"] = at_most(
            seconds[ranks], median(alone), unit, _LARGEST * shared, shared
        )
        entries["start-up"] = entries[f"start-up-{ranks}-ranks"]  # of the most ranks
    fewest, most = min(seconds), max(seconds)
    unit = f"s to a trained first step of {most} ranks, peer: {fewest} ranks"
    goal = _ranks_per_core(most) / _ranks_per_core(fewest)
    entries["start-up-growth"] = at_most(seconds[most], seconds[fewest], unit, most / fewest, goal)
    return entries


def _ranks_per_core(ranks: int) -> float:
    return max(1.0, ranks / len(os.sched_getaffinity(0)))


def _phases(folder: Path, data: Path, ranks: int) -> list[float]:
    """Seconds of each phase, until the last rank ended it."""
    job_file = write_cell(folder, data, LAYOUTS[ranks])
    marks = on_mesh(Degrees(replicas=ranks), _marks, job_file, patience_seconds=600)
    ends = [max(of_ranks) for of_ranks in zip(*marks, strict=True)]
    return [end - start for start, end in pairwise(ends)]


def _marks(world: Mesh, job_file: Path) -> list[float]:
    """When this rank had met the others and when it ended each phase; it waits for them after the first."""
    world.world.barrier()
    marks = [time.time()]
    job = read_job(job_file)
    mesh = make_mesh(world.rank, job.spec.degrees, world.device)
    axes = (mesh.data, mesh.tensor, mesh.pipeline, mesh.model, mesh.stage, mesh.shard, mesh.replicas)
    for axis in axes:
        axis.all_reduce(torch.zeros(1))
    world.world.barrier()
    marks.append(time.time())
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(job, job_file, mesh)
    marks.append(time.time())
    clock = StepTimer(world.device)
    clock.start()
    numbers = training.engine.step(training.loader.micro_batches(1), 1e-3, clock)
    assert numbers.finite, "a step was trained"
    return [*marks, time.time()]
