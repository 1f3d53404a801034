"""Part of row ``loader``: what the ranks of a node read from disk together, and how fast their reader is without a training.

The bytes are those that the kernel fetched from the disk for the reader and all ranks (``read_bytes`` of ``/proc/…/io``). The
shards are evicted from the page cache before each measurement. Ranks with different data have disjoint rows of each batch, and
tensor ranks have the same rows, so the node needs the same bytes in each case.

The need of a trainer is an assumption: a node with eight H100 that trains Llama 2 7B in FP8 at 20,400 tokens/s per GPU, which
is what the roofline of the model allows (4,096 tokens per sequence).
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.report.entries import Entry, at_least, at_most
from tests.benchmarks.trainer.shapes import SHAPES, TOY
from tests.benchmarks.trainer.timed_training import Shape, write_tokens
from trainwright.contracts.job_spec import JobSpec
from trainwright_trainer.data.batch_ring import BatchRing, lock_as_reader, ring_layout, ring_memory
from trainwright_trainer.data.loader import Loader
from trainwright_trainer.data.node_reader import read_for_node
from trainwright_trainer.data.position import START
from trainwright_trainer.data.shared_batches import SharedBatches
from trainwright_trainer.data.token_shards import TokenStream, read_manifest

NEED_TOKENS_PER_SECOND = 8 * 20_400
_TIMES_THE_NEED = 50
_GROWTH = 1.02
"""Largest ratio of bytes with several ranks to those with one that counts as equal."""

_FORK = multiprocessing.get_context("fork")


class Layout(NamedTuple):
    ranks: int
    tensor: int = 1


class Measured(NamedTuple):
    disk_bytes: int
    seconds: float
    """Until the last rank had its last batch."""


def node_loader(toy: bool, folder: Path) -> dict[str, Entry]:
    """Bytes of a node for each number of ranks, and tokens per second of a node compared with its need."""
    model = SHAPES["7b"]
    shape = Shape(model.model, TOY.vocabulary, TOY.batch) if toy else model
    shape = shape.with_batch(1, 8 if toy else 1_024)
    steps = 2 if toy else 4
    write_tokens(folder / "node", shape.vocabulary, 2**16 if toy else 2**26)
    entries: dict[str, Entry] = {}
    layouts = [Layout(1), Layout(2), Layout(2, 2)]
    layouts += [] if toy else [Layout(4), Layout(8), Layout(8, 8)]
    alone = _measure(shape, folder / "node", Layout(1), steps, shared=False)
    print(f"  1 rank: {alone.disk_bytes / 1e6:.1f} MB from disk")
    for layout in layouts[1:]:
        each = _measure(shape, folder / "node", layout, steps, shared=False)
        node = _measure(shape, folder / "node", layout, steps, shared=True)
        name = f"{layout.ranks}-{'tensor-' if layout.tensor > 1 else ''}ranks"
        print(
            f"  {name.replace('-', ' ')}: {node.disk_bytes / 1e6:.1f} MB from disk with a reader, "
            f"{each.disk_bytes / 1e6:.1f} MB if each rank maps the shards"
        )
        if alone.disk_bytes:
            unit = "bytes from disk a node, peer: one rank"
            entries[f"loader-disk-{name}"] = at_most(node.disk_bytes, alone.disk_bytes, unit, _GROWTH, 1.0)
    if not alone.disk_bytes:
        print(f"  bytes from disk: not measured, {folder} is not on a disk (set TMPDIR)")
    cached = _measure(shape, folder / "node", layouts[-2], steps, shared=True, evict=False)
    rate = steps * shape.tokens_per_step / cached.seconds
    unit = "tokens/s of a node's loader without a training, peer: the need of 8 H100"
    entries["loader-need"] = at_least(rate, NEED_TOKENS_PER_SECOND, unit, _TIMES_THE_NEED, _TIMES_THE_NEED)
    return entries


def _measure(
    shape: Shape, data: Path, layout: Layout, steps: int, shared: bool, evict: bool = True
) -> Measured:
    """Let the ranks of a node take the batches of ``steps``, from a reader or each from the shards."""
    job = _job(shape, layout, steps)
    if evict:
        _evict(data)
    with ring_memory(ring_layout(job)) if shared else nullcontext() as path:
        lock = lock_as_reader(path) if path else None
        targets: list[tuple[Callable[..., None], tuple[object, ...]]] = [
            (_take_batches, (job, data, path, rank)) for rank in range(layout.ranks)
        ]
        if path:
            targets.append((read_for_node, (job, data, path)))
        began = time.perf_counter()
        results = _run(targets)
        if lock is not None:
            os.close(lock)
    ended = max(moment for _, moment in results[: layout.ranks])
    return Measured(sum(count for count, _ in results), ended - began)


def _run(targets: list[tuple[Callable[..., None], tuple[object, ...]]]) -> list[tuple[int, float]]:
    """Run each in a process; returns the bytes that it read from disk, and when it ended."""
    pipes = [_FORK.Pipe(duplex=False) for _ in targets]
    processes = [
        _FORK.Process(target=_report, args=(sender, *target))
        for (_, sender), target in zip(pipes, targets, strict=True)
    ]
    for process in processes:
        process.start()
    results: list[tuple[int, float]] = [receiver.recv() for receiver, _ in pipes]
    for process in processes:
        process.join()
    return results


def _report(sender: Connection, function: Callable[..., None], arguments: tuple[object, ...]) -> None:
    function(*arguments)
    moment = time.perf_counter()
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    sender.send((int(counts["read_bytes"]), moment))


def _take_batches(job: JobSpec, data: Path, path: str | None, rank: int) -> None:
    spec, manifest = job.spec, read_manifest(data)
    data_rank = rank // spec.degrees.tensor
    stream = TokenStream(data, manifest.train, manifest.token_type, spec.batch.sequence_tokens)
    shared = None
    if path is not None:
        ring = BatchRing(path, ring_layout(job))
        shared = SharedBatches(ring, rank, data_rank, manifest.token_type, START)
    loader = Loader(stream, spec.batch, spec.seed, data_rank, spec.degrees.data, START, shared)
    for step in range(1, spec.schedule.steps + 1):
        for _ in loader.micro_batches(step):
            pass


def _job(shape: Shape, layout: Layout, steps: int) -> JobSpec:
    return JobSpec.model_validate(
        {
            "run_id": "benchmark",
            "attempt": 1,
            "fence": 1,
            "device": "cpu",
            "slots": list(range(layout.ranks)),
            "spec": {
                "name": "benchmark",
                "data": {"dataset": "random", "tokenizer": {"vocabulary": shape.vocabulary}},
                "model": shape.model.model_dump(),
                "batch": shape.batch.model_dump(),
                "schedule": {"steps": steps, "warmup_steps": 1},
                "parallelism": {"tensor": layout.tensor},
                "resources": {"device": "cpu", "slots_per_node": layout.ranks},
            },
        }
    )


def _evict(data: Path) -> None:
    """Drop the shards from the page cache, which holds only what is on disk."""
    for file in data.glob("*.bin"):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
