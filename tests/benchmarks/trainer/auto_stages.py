"""Row ``stages-auto``: a pipeline with one slow rank, split by ``auto`` and evenly.

Both trainings live in the same processes and make one step at a time in the order A-B-B-A. The trainer measures the ranks'
speeds itself when it builds the training with ``auto``. A step ends when the last rank ends. The control has no slow rank:
there, ``auto`` should cost nothing.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.harness.cpu_quota import cpu_quota, join
from tests.benchmarks.report.entries import Entry, at_most
from tests.parity.learning import prepare
from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import EVENTS_NAME, output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import Training, build

SHARE = 0.25
"""The first rank's share of a core."""

_SPLITS = ("even", "auto")
_TURNS = ("even", "auto", "auto", "even")
_SIZES: dict[bool, dict[str, Any]] = {
    False: {
        "model": {"layers": 8, "width": 256, "heads": 4, "kv_heads": 4},
        "batch": {"sequence_tokens": 128, "micro_sequences": 2, "global_sequences": 16},
    },
    True: {
        "model": {"layers": 4, "width": 64, "heads": 4, "kv_heads": 4},
        "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 4},
    },
}
"""Values by whether the run is at toy size."""


def stages_auto(toy: bool, folder: Path) -> dict[str, Entry]:
    """Seconds of a step on 2 ranks, and on 3 if there are enough cores.

    Raises:
        RefusedError: no CPU quota can be set here.
    """
    data = prepare(folder / "stages")
    entries: dict[str, Entry] = {}
    cores = len(os.sched_getaffinity(0))
    for ranks in (2,) if toy or cores < 3 else (2, 3):
        name = "stages-auto" if ranks == 2 else f"stages-auto-{ranks}-ranks"
        with cpu_quota(SHARE) as group:
            entries[name] = _measured(folder / name, data, ranks, toy, group, 0.9, 0.6)
        entries[f"{name}-unslowed"] = _measured(
            folder / f"{name}-unslowed", data, ranks, toy, None, 1.05, 1.0
        )
    return entries


def _measured(
    folder: Path, data: Path, ranks: int, toy: bool, group: Path | None, passes: float, goal: float
) -> Entry:
    """``auto`` compared with ``even``; prints the chosen split."""
    job_files = {name: _job(folder / name, data, ranks, toy, name) for name in _SPLITS}
    rounds = 1 if toy else 6
    seconds, *_ = on_mesh(Degrees(replicas=ranks), _alternate, job_files, group, rounds, patience_seconds=600)
    slowed = "no rank slowed down" if group is None else f"the first rank with {SHARE:.0%} of a core"
    print(f"  {ranks} ranks, {slowed}: {_remark(job_files['auto'])}")
    medians = {name: median(spent) for name, spent in seconds.items()}
    return at_most(medians["auto"], medians["even"], "s a step, peer: even stages", passes, goal)


def _job(folder: Path, data: Path, ranks: int, toy: bool, stages: str) -> Path:
    layout = {"pipeline": ranks, "stages": stages}
    job_file = write_job(folder, data, ranks, parallelism=layout, **_SIZES[toy])
    output_folder(job_file).mkdir()
    return job_file


def _alternate(
    world: Mesh, job_files: dict[str, Path], group: Path | None, rounds: int
) -> dict[str, list[float]]:
    """Seconds of each training's steps but the first, by the first rank's clock."""
    if group is not None and world.rank == 0:
        join(group)
    trainings = {name: _built(world, job_file) for name, job_file in job_files.items()}
    for name in _SPLITS:
        _step(world, trainings[name], 1)
    spent: dict[str, list[float]] = {name: [] for name in _SPLITS}
    for _ in range(rounds):
        for name in _TURNS:
            spent[name].append(_step(world, trainings[name], len(spent[name]) + 2))
    return spent


def _built(world: Mesh, job_file: Path) -> Training:
    job = read_job(job_file)
    return build(job, job_file, make_mesh(world.rank, job.spec.degrees, world.device))


def _step(world: Mesh, training: Training, number: int) -> float:
    world.world.barrier()
    began = time.perf_counter()
    numbers = training.engine.step(training.loader.micro_batches(number), 1e-3, StepTimer(world.device))
    assert numbers.finite, "a step was trained"
    world.world.barrier()
    return time.perf_counter() - began


def _remark(job_file: Path) -> str:
    """The trainer's note on the stages that it chose."""
    lines = (output_folder(job_file) / EVENTS_NAME).read_text().splitlines()
    messages = [json.loads(line).get("message", "") for line in lines]
    return next(message for message in messages if message.startswith("The stages have"))
