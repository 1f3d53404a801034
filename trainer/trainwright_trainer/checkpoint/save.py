"""Writing checkpoints in the background, so that a crash at any time leaves no partial checkpoint.

    step-20.tmp-…/tensors-0-00000.safetensors, …   written by every rank, hashed, synced (``checkpoint.rank_files``)
    step-20.tmp-…/rank-0.json, …                   manifests of the above; the node's first rank removes them
    step-20.tmp-…/manifest.json                    by that rank, atomically: names, sizes and digests of all files
    step-20/                                       the folder is renamed when everything in it is on disk

With several nodes, each has the files of its own ranks and the manifest of all of them. The first ranks of the
nodes exchange what they have written through the store of the process group (``checkpoint.node_manifests``).

A folder without a manifest, or with one that does not match, is not a checkpoint.

Invariants between the ranks: all save at the same steps, each step once, under a nonce that they agreed on, so that
each step has one folder, which is never that of an earlier attempt. A rank does not touch a draft after writing its
manifest; only its node's first rank does, when all of the node's manifests exist. A rank's save ends when its manifest
has been collected, and a rank starts no save before its last one has ended. So nobody writes the draft of the next step
before the node's files of this one are all on disk; and a rank that has waited for its last save may exit: its files
are in the manifest, or the failure of its node's first rank ends the run. If a rank is gone, the others' threads wait
forever; they do not keep a process alive.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from secrets import randbits
from threading import Thread
from uuid import uuid4

import torch
from torch import Tensor

from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, digest_of
from trainwright.contracts.token_shards import MANIFEST_NAME
from trainwright.durable_files import rename_durably
from trainwright_trainer.checkpoint.host_memory import HostMemory
from trainwright_trainer.checkpoint.node_manifests import NodeManifests, node_manifests
from trainwright_trainer.checkpoint.rank_files import (
    RankManifest,
    await_collection,
    collect_rank_manifests,
    write_rank_files,
)
from trainwright_trainer.checkpoint.snapshot import Snapshot
from trainwright_trainer.checkpoint.tensor_files import write_hashed
from trainwright_trainer.distributed.mesh import Mesh


@dataclass(frozen=True)
class Origin:
    """What a manifest records about the training that wrote it."""

    config_digest: str
    world_size: int
    parent_digest: str | None


@dataclass(frozen=True)
class Writer:
    """One of the ranks that write a checkpoint together."""

    rank: int
    on_node: range
    """The ranks of its node."""
    nonce: str
    """Part of the names of their drafts."""
    nodes: NodeManifests | None = None
    """Exchanges the nodes' manifests; None for one node."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint."""

    step: int
    folder: Path
    digest: str
    bytes: int
    seconds: float


def join_writers(mesh: Mesh) -> Writer:
    """Agree with all ranks on a nonce drawn by rank 0."""
    nonce = torch.tensor(randbits(48), device=mesh.device)
    mesh.world.broadcast(nonce, source=0)
    name = f"{nonce.item():012x}"
    return Writer(mesh.rank, mesh.on_node, name, node_manifests(mesh, name))


class Saver:
    """Writes this rank's part of one snapshot at a time in its own thread, which also allocates the memory for the first."""

    def __init__(
        self, folder: Path, origin: Origin, writer: Writer, on_saved: Callable[[SavedCheckpoint], None]
    ) -> None:
        """``on_saved`` is called for each complete checkpoint, on the first rank of each node."""
        self._folder = folder
        self._origin = origin
        self._writer = writer
        self._when_saved = on_saved
        self.memory = HostMemory()
        """Where snapshots are copied to; nobody reads the previous one when ``save`` takes the next."""
        self._working: Future[None] | None = None

    def reserve(self, state: Sequence[Tensor]) -> None:
        """Start to allocate and pin the memory of the first snapshot of ``state``, which is on a GPU."""
        self._start(lambda: self.memory.allocate(state, pinned=True))

    def save(self, take: Callable[[], Snapshot]) -> None:
        """Take a snapshot and start writing it; first waits for the previous one, so that two never share the memory.

        Raises the error that the previous one failed with.
        """
        self.wait()
        snapshot = take()
        self._start(lambda: self._write(snapshot))

    def check(self) -> None:
        """Raise the error of a write, or of the allocation of its memory, that has failed."""
        if self._working is not None and self._working.done():
            self.wait()

    def wait(self) -> None:
        """Return when nothing is being written, and no memory is being allocated for it."""
        if self._working is not None:
            self._working.result()
            self._working = None

    def _start(self, work: Callable[[], object]) -> None:
        self._working = Future()
        Thread(target=_run, args=(work, self._working), name="checkpoint", daemon=True).start()

    def _write(self, snapshot: Snapshot) -> None:
        saved = save_checkpoint(self._folder, snapshot, self._origin, self._writer)
        if saved is not None:
            self._when_saved(saved)


def _run(work: Callable[[], object], ended: Future[None]) -> None:
    try:
        work()
        ended.set_result(None)
    except BaseException as error:  # raised by ``wait`` in the training's thread
        ended.set_exception(error)


def save_checkpoint(
    checkpoints: Path, snapshot: Snapshot, origin: Origin, writer: Writer
) -> SavedCheckpoint | None:
    """Write this rank's part of ``step-<n>`` below ``checkpoints``; its node's first rank completes and returns it.

    An existing checkpoint of that name is replaced.
    """
    started = time.monotonic()
    final = checkpoints / f"step-{snapshot.step}"
    draft = checkpoints / f"{final.name}.tmp-{writer.nonce}"
    draft.mkdir(parents=True, exist_ok=True)
    write_rank_files(draft, writer.rank, snapshot.slices)
    if writer.rank != writer.on_node.start:
        await_collection(draft, writer.rank)
        return None
    written = collect_rank_manifests(draft, writer.on_node)
    build = partial(_manifest, snapshot, origin)
    content = (
        build(written).to_bytes()
        if writer.nodes is None
        else writer.nodes.exchange(snapshot.step, written, build)
    )
    digest = write_manifest(draft, content)
    replace_folder(draft, final)
    size = sum(entry.bytes for entry in CheckpointManifest.model_validate_json(content).files)
    return SavedCheckpoint(snapshot.step, final, digest, size, time.monotonic() - started)


def write_manifest(folder: Path, content: bytes) -> str:
    """Write the manifest, the last file in ``folder``; returns its digest."""
    draft = folder / f"{MANIFEST_NAME}.tmp"
    write_hashed(draft, [content])
    rename_durably(draft, folder / MANIFEST_NAME)
    return digest_of(content)


def replace_folder(draft: Path, final: Path) -> None:
    """Rename a complete folder to ``final``, durably; an existing one is removed."""
    old = final.with_name(f"{final.name}.old-{uuid4().hex[:12]}")
    if final.exists():
        final.rename(old)
    rename_durably(draft, final)
    if old.exists():
        shutil.rmtree(old)


def code_version() -> str:
    return version("trainwright")


def _manifest(snapshot: Snapshot, origin: Origin, written: RankManifest) -> CheckpointManifest:
    """The manifest of what all ranks have written."""
    return CheckpointManifest(
        kind=CheckpointKind.STATE,
        step=snapshot.step,
        files=written.files,
        config_digest=origin.config_digest,
        code_version=code_version(),
        world_size=origin.world_size,
        parent_digest=origin.parent_digest,
        tensors=written.tensors,
        state=snapshot.state,
    )
