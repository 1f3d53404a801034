"""Time and memory of single parts compared with torch's own, on this CPU, in one process.

Two things run in several rounds of the order A-B-B-A, and their medians are compared: on a shared machine absolute times can
double within minutes, while ratios hardly change. Single-threaded work is measured in CPU time, which other processes do
not affect.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.trainer.gpu_rows import state_bytes
from tests.benchmarks.trainer.shapes import TOY
from tests.benchmarks.trainer.timed_training import Shape, build_job, learn, write_job
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.training.build import Training

_FP32 = {"kind": "fp32"}
_SMALL = Shape(
    ModelSpec(layers=4, width=256, heads=4),
    2_048,
    BatchSpec(sequence_tokens=256, micro_sequences=8, global_sequences=8),
)
"""Large enough for matmuls to be most of a step."""


def state(toy: bool) -> dict[str, Entry]:
    """Bytes per parameter of gradients, moments and master weights: O2 compared with float32 AdamW."""
    shape = TOY if toy else _SMALL
    with tempfile.TemporaryDirectory() as folder:
        ours = build_job(write_job(Path(folder) / "fp8", shape, 2, precision={"kind": "fp8"}))
        peer = build_job(write_job(Path(folder) / "fp32", shape, 2, precision=_FP32))
        assert isinstance(ours.engine.updater, FP8Updater)
        learn(ours, 1)
        learn(peer, 1)
        kept = state_bytes(ours.engine.updater) / shape.parameters
        usual = _float32_bytes(peer) / shape.parameters
    return {"state": at_most(kept, usual, "bytes a parameter", 6.1 / 16, 6.0 / 16)}


def _float32_bytes(training: Training) -> int:
    """Bytes of weights, gradients and moments of torch's AdamW."""
    weights = list(training.engine.model.parameters())
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    moments = [item for item in training.engine.updater.state() if item.name.startswith("optimizer.")]
    return sum(tensor.nbytes for tensor in [*weights, *gradients, *(moment.tensor for moment in moments)])


def optimizer(toy: bool) -> dict[str, Entry]:
    """Nanoseconds per parameter, on one thread, of clipping and an update: O2 compared with torch's fused AdamW."""
    torch.set_num_threads(1)
    shape = TOY if toy else _SMALL
    with tempfile.TemporaryDirectory() as folder:
        ours = _update_of(build_job(write_job(Path(folder) / "fp8", shape, 2, precision={"kind": "fp8"})))
        theirs = _update_of(build_job(write_job(Path(folder) / "fp32", shape, 2, precision=_FP32)))
        seconds = in_turn(ours, theirs, 2 if toy else 10, time.process_time)
    nanoseconds = [1e9 * second / shape.parameters for second in seconds]
    return {"optimizer": at_most(*nanoseconds, "ns a parameter", 1.0, 1.0)}


def _update_of(training: Training) -> Callable[[], None]:
    """One more update by the gradients of the training's first step."""
    learn(training, 1)
    updater = training.engine.updater
    norm = updater.grad_norm()
    return lambda: updater.update(norm)


def in_turn(
    ours: Callable[[], None],
    peer: Callable[[], None],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Median seconds of a call of each, in the order A-B-B-A; the first round warms up."""
    seconds: dict[Callable[[], None], list[float]] = {ours: [], peer: []}
    for number in range(rounds + 1):
        for who in (ours, peer, peer, ours):
            began = clock()
            who()
            if number:
                seconds[who].append(clock() - began)
    return median(seconds[ours]), median(seconds[peer])
