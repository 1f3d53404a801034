"""Checkpoints: how long a save stalls training, and how fast state is written and read.

Peers are a plain copy in memory, a plain file, and ``torch.distributed.checkpoint``. All move the same bytes: weights and
two moments, in float32. Files are read from disk, not from the page cache.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor

from tests.benchmarks.harness.interleave import Contender, Pacer, Request, in_turn
from tests.benchmarks.report.entries import Entry, at_least, at_most
from tests.benchmarks.trainer.shapes import TOY
from tests.benchmarks.trainer.timed_training import Shape, build_job, learn, write_job
from trainwright.contracts.checkpoint import CheckpointManifest
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.checkpoint.load import read_checkpoint, restore, verifying
from trainwright_trainer.checkpoint.save import Origin, Writer, save_checkpoint
from trainwright_trainer.checkpoint.snapshot import config_digest, take_snapshot, training_position
from trainwright_trainer.training.build import Training

_GIB = 2**30
_STATE = Shape(
    ModelSpec(layers=6, width=768, heads=12),
    4_096,
    BatchSpec(sequence_tokens=64, micro_sequences=1, global_sequences=1),
)
"""Half a GiB of state."""

_BLOCK_BYTES = 2**23


def stall(toy: bool, folder: Path) -> dict[str, Entry]:
    """Seconds per GiB for which a save stalls training."""
    seconds = _seconds(toy, folder / "stall", ["ours_stall", "memcpy", "dcp_stall"], rounds=6)
    ours, copied, dcp_stall = (second / _gib(toy) for second in seconds)
    return {
        "checkpoint-stall": at_most(ours, copied, "s/GiB", 1.5, 1.0),
        "checkpoint-stall-dcp": at_most(ours, dcp_stall, "s/GiB", 1.0, 0.5),
    }


def persist(toy: bool, folder: Path) -> dict[str, Entry]:
    """GiB per second from memory to disk, synced: ours with digests, the peer without."""
    ours, raw = _rates(toy, folder / "persist", ["ours_write", "raw_write"])
    return {"checkpoint-persist": at_least(ours, raw, "GiB/s", 0.8, 1.0)}


def load(toy: bool, folder: Path) -> dict[str, Entry]:
    """GiB per second from disk into the training's state: ours checks every digest."""
    ours, raw, theirs = _rates(toy, folder / "load", ["ours_read", "raw_read", "dcp_read"])
    return {
        "checkpoint-load": at_least(ours, raw, "GiB/s", 0.8, 1.0),
        "checkpoint-load-dcp": at_least(ours, theirs, "GiB/s", 1.0, 1.0),
    }


def ours_stall(request: Request, pacer: Pacer) -> None:
    training = _trained(request)
    updater, saver = training.engine.updater, training.saver
    pacer.start()
    while True:
        where = training_position(1, training.spec) | training.skipped_steps.scalars()
        saver.save(partial(take_snapshot, updater, where, saver.memory))
        pacer.step_done(saver.wait)


def memcpy(request: Request, pacer: Pacer) -> None:
    state = _state(_trained(request))
    copies = [torch.zeros_like(tensor) for tensor in state.values()]
    pacer.start()
    while True:
        for copy, tensor in zip(copies, state.values(), strict=True):
            copy.copy_(tensor)
        pacer.step_done()


def dcp_stall(request: Request, pacer: Pacer) -> None:
    state, folder = _state(_trained(request)), request.folder / "dcp"
    pacer.start()
    while True:
        saving = dcp.async_save(state, checkpoint_id=str(folder), no_dist=True)
        assert isinstance(saving, Future)
        pacer.step_done(partial(_finish_and_delete, saving, folder))


def _finish_and_delete(saving: Future[Any], folder: Path) -> None:
    saving.result()
    shutil.rmtree(folder)


def ours_write(request: Request, pacer: Pacer) -> None:
    training = _trained(request)
    where = training_position(1, training.spec) | training.skipped_steps.scalars()
    snapshot = take_snapshot(training.engine.updater, where, training.saver.memory)
    origin, writer = Origin(config_digest(training.spec), 1, None), Writer(0, range(1), "0")
    pacer.start()
    while True:
        saved = save_checkpoint(request.folder / "checkpoints", snapshot, origin, writer)
        assert saved is not None
        pacer.step_done(lambda: shutil.rmtree(request.folder / "checkpoints"))


def raw_write(request: Request, pacer: Pacer) -> None:
    state, path = _state(_trained(request)), request.folder / "raw"
    pacer.start()
    while True:
        _write_raw(path, state.values())
        pacer.step_done(path.unlink)


def ours_read(request: Request, pacer: Pacer) -> None:
    training = _trained(request)
    where = training_position(1, training.spec) | training.skipped_steps.scalars()
    updater, digest = training.engine.updater, config_digest(training.spec)
    snapshot = take_snapshot(updater, where, training.saver.memory)
    saved = save_checkpoint(request.folder, snapshot, Origin(digest, 1, None), Writer(0, range(1), "0"))
    assert saved is not None
    pacer.start()
    while True:
        _drop_page_cache(saved.folder)
        pacer.begin()
        manifest: CheckpointManifest = read_checkpoint(saved.folder, digest, saved.digest)
        with verifying(saved.folder, manifest, training.mesh):
            restore(saved.folder, manifest, updater, training.mesh)
        pacer.step_done()


def raw_read(request: Request, pacer: Pacer) -> None:
    folder = request.folder / "raw"
    folder.mkdir()
    _write_raw(folder / "state", _state(_trained(request)).values())
    block = bytearray(_BLOCK_BYTES)
    pacer.start()
    while True:
        _drop_page_cache(folder)
        pacer.begin()
        with (folder / "state").open("rb", buffering=0) as file:
            while file.readinto(block):
                pass
        pacer.step_done()


def dcp_read(request: Request, pacer: Pacer) -> None:
    state, folder = _state(_trained(request)), request.folder / "dcp"
    dcp.save(state, checkpoint_id=str(folder), no_dist=True)
    pacer.start()
    while True:
        _drop_page_cache(folder)
        pacer.begin()
        dcp.load(state, checkpoint_id=str(folder), no_dist=True)
        pacer.step_done()


def _seconds(toy: bool, folder: Path, functions: list[str], rounds: int) -> list[float]:
    """Median wall seconds of each."""
    shape = TOY if toy else _STATE
    request = Request(
        folder=folder,
        model=shape.model,
        vocabulary=shape.vocabulary,
        batch=shape.batch,
        steps=2,
        threads=torch.get_num_threads(),
    )
    contenders = {name: Contender("tests.benchmarks.trainer.checkpointing", name) for name in functions}
    spent = in_turn(contenders, request, warm_up=1 if toy else 2, rounds=1 if toy else rounds)
    shutil.rmtree(folder)
    return [spent[name].wall_median() for name in functions]


def _rates(toy: bool, folder: Path, functions: list[str]) -> list[float]:
    return [_gib(toy) / second for second in _seconds(toy, folder, functions, rounds=4)]


def _gib(toy: bool) -> float:
    return 12 * (TOY if toy else _STATE).parameters / _GIB


def _trained(request: Request) -> Training:
    """A training after one step: its weights, gradients and moments are not zero."""
    torch.set_num_threads(request.threads)
    training = build_job(write_job(request.folder / "job", request.shape, 2, precision={"kind": "fp32"}))
    learn(training, 1)
    return training


def _state(training: Training) -> dict[str, Tensor]:
    return {held.name: held.tensor for held in training.engine.updater.state()}


def _write_raw(path: Path, tensors: Iterable[Tensor]) -> None:
    with path.open("wb", buffering=0) as file:
        for tensor in tensors:
            left = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
            while left:
                left = left[file.write(left) :]
        os.fsync(file.fileno())
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _drop_page_cache(folder: Path) -> None:
    """Sync the files in ``folder``, and drop them from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
