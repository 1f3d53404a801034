"""Bytes that a rank sends in a step, counted at the collectives, including scales and all small messages.

A real training makes steps on two and four ranks over gloo. Each call of torch.distributed counts as what its best algorithm
sends from one rank: 2·(R-1)/R of an all-reduced tensor, (R-1)/R of one that is exchanged, gathered or broadcast. The peer
is the same in bfloat16: all gradients all-reduced, or all weights broadcast by their owners.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.trainer.shapes import TOY
from tests.benchmarks.trainer.timed_training import Shape, learn, write_job
from tests.trainer.ranks import on_ranks
from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.presets import PRESETS
from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.distributed import axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.training.build import build

MICRO = Shape(PRESETS["micro"], 4_096, BatchSpec(sequence_tokens=64, micro_sequences=1, global_sequences=4))
_MAX_SHARE = 0.51
_GOAL = 0.505
"""A half is the FP8 values alone; a hundredth of that is room for scales."""

_SENT: tuple[tuple[Any, str, int, int], ...] = (
    # Module, function, what it sends in units of (R-1)/R, and which argument is the full tensor.
    (dist, "all_reduce", 2, 0),
    (dist, "all_to_all_single", 1, 1),
    (axis, "_all_gather", 1, 0),
    (dist, "broadcast", 1, 0),
)


def run(toy: bool) -> dict[str, Entry]:
    """Gradients at O1 and weights at O3 on two and four ranks."""
    entries = {}
    for ranks in (2,) if toy else (2, 4):
        for what, level in (("gradients", "O1"), ("weights", "O3")):
            ours, peer = count(level, what, ranks, TOY if toy else MICRO)
            entries[f"bytes-{what}-{ranks}-ranks"] = at_most(
                ours, peer, "bytes a parameter", _MAX_SHARE, _GOAL
            )
    return entries


def count(level: str, what: str, ranks: int, shape: Shape) -> tuple[float, float]:
    """Bytes per parameter that a rank sends for ``what``: ours at ``level``, and in bfloat16."""
    with tempfile.TemporaryDirectory(prefix="trainwright-bytes-") as folder:
        given = shape.with_batch(1, 4)
        precision = {"kind": "fp8", "fp8": {"level": level, "observe_every_steps": 1_000}}
        job_file = write_job(
            Path(folder), given, 3, precision=precision, resources={"device": "cpu", "slots_per_node": ranks}
        )
        results = on_ranks(ranks, _on_a_rank, str(job_file), what, shape.parameters)
    ours, peer = zip(*results, strict=True)
    return max(ours) / shape.parameters, max(peer) / shape.parameters


def _on_a_rank(mesh: Mesh, job_file: str, what: str, parameters: int) -> tuple[float, float]:
    job = JobSpec.model_validate_json(Path(job_file).read_bytes())
    training = build(job.model_copy(update={"slots": tuple(range(mesh.ranks))}), Path(job_file), mesh)
    updater = training.engine.updater
    assert isinstance(updater, FP8Updater)
    learn(training, 2)  # the first step also sends its statistics
    with counted_bytes() as whole, counted_bytes_of(updater, "_sync_weights") as weights:
        learn(training, 1)
    ours = sum(weights) if what == "weights" else sum(whole) - sum(weights)
    return ours, _in_bfloat16(what, parameters)


def _in_bfloat16(what: str, parameters: int) -> float:
    flat = torch.zeros(parameters, dtype=torch.bfloat16)
    with counted_bytes() as sent:
        if what == "gradients":
            dist.all_reduce(flat)
        else:
            dist.broadcast(flat, 0)
    return sum(sent)


@contextmanager
def counted_bytes() -> Iterator[list[float]]:
    """The list gets the bytes that this rank sends in each collective."""
    sent: list[float] = []
    share = (dist.get_world_size() - 1) / dist.get_world_size()

    def counting(real: Callable[..., Any], times: int, which: int) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            whole: Tensor = arguments[which]
            sent.append(times * share * whole.nbytes)
            return real(*arguments, **options)

        return call

    held = [(where, name, getattr(where, name)) for where, name, _, _ in _SENT]
    for (where, name, times, which), (_, _, real) in zip(_SENT, held, strict=True):
        setattr(where, name, counting(real, times, which))
    try:
        yield sent
    finally:
        for where, name, real in held:
            setattr(where, name, real)


@contextmanager
def counted_bytes_of(holder: object, method: str) -> Iterator[list[float]]:
    """The list gets the bytes that this rank sends inside ``method``."""
    sent: list[float] = []
    real = getattr(holder, method)

    def call() -> None:
        with counted_bytes() as inside:
            real()
        sent.extend(inside)

    setattr(holder, method, call)
    try:
        yield sent
    finally:
        delattr(holder, method)
