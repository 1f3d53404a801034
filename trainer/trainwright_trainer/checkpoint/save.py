"""Writing checkpoints, behind the training's back and so that a crash at any instant leaves none that is half done.

    step-20.tmp-…/tensors-0-00000.safetensors, …   written by every rank, hashed, synced (``checkpoint.parts``)
    step-20.tmp-…/rank-0.json, …                   lists of the above; rank 0 waits for all, and takes them away
    step-20.tmp-…/manifest.json                    by rank 0, by a rename: names, sizes and digests of the rest
    step-20/                                       the folder gets its name when everything in it is on disk

A folder without a manifest is no checkpoint, and neither is one whose manifest does not match.

What holds between the ranks: all save at the same steps, each step once, under a nonce that they agreed on, so that
one step is one folder and no earlier attempt's. A rank touches a draft no more once its list is there; rank 0 alone
does, after all lists are. A rank's save has ended when its list has been taken away, and a rank begins no save before
its last one has ended. So nobody writes into the draft of a next step before the parts of this one are all on disk;
and a rank that has waited for its last save may end: its part is in the manifest, or rank 0's failure ends the run.
Where a rank is gone, the others' threads wait for ever; they do not keep a process alive.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from secrets import randbits
from threading import Thread
from uuid import uuid4

import torch

from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, digest_of
from trainwright.contracts.shards import MANIFEST_NAME
from trainwright_trainer.checkpoint.files import sync_folder, write_hashed
from trainwright_trainer.checkpoint.host_memory import HostMemory
from trainwright_trainer.checkpoint.parts import await_collection, collect_parts, write_part
from trainwright_trainer.checkpoint.snapshot import Snapshot
from trainwright_trainer.mesh import Mesh


@dataclass(frozen=True)
class Origin:
    """What a manifest tells of the training that it comes from."""

    config_digest: str
    world_size: int
    parent_digest: str | None


@dataclass(frozen=True)
class Writer:
    """One of the ranks that write a checkpoint together."""

    rank: int
    ranks: int
    nonce: str
    """Stands in the names of their drafts."""


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint."""

    step: int
    folder: Path
    digest: str
    bytes: int
    seconds: float


def join_writers(mesh: Mesh) -> Writer:
    """Agree with all ranks on a nonce, which rank 0 draws."""
    nonce = torch.tensor(randbits(48), device=mesh.device)
    mesh.world.broadcast(nonce, source=0)
    return Writer(mesh.rank, mesh.ranks, f"{nonce.item():012x}")


class Saver:
    """Writes this rank's part of one snapshot at a time in a thread of its own."""

    def __init__(
        self, folder: Path, origin: Origin, writer: Writer, when_saved: Callable[[Saved], None]
    ) -> None:
        """``when_saved`` is told of each complete checkpoint, on rank 0."""
        self._folder = folder
        self._origin = origin
        self._writer = writer
        self._when_saved = when_saved
        self.memory = HostMemory()
        """Where snapshots are copied to; nobody reads the one before when ``save`` asks for the next."""
        self._writing: Future[None] | None = None

    def save(self, take: Callable[[], Snapshot]) -> None:
        """Take a snapshot and begin to write it; waits first for the one before, so that two never share the memory.

        Raises what that one failed with.
        """
        self.wait()
        self._writing = Future()
        Thread(target=self._write, args=(take(), self._writing), name="checkpoint", daemon=True).start()

    def check(self) -> None:
        """Raise the error of a write that has failed."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, snapshot: Snapshot, ended: Future[None]) -> None:
        try:
            saved = save_checkpoint(self._folder, snapshot, self._origin, self._writer)
            if saved is not None:
                self._when_saved(saved)
            ended.set_result(None)
        except BaseException as error:  # raised again by ``wait``, in the training's thread
            ended.set_exception(error)


def save_checkpoint(checkpoints: Path, snapshot: Snapshot, origin: Origin, writer: Writer) -> Saved | None:
    """Write this rank's part of ``step-<n>`` below ``checkpoints``; rank 0 completes it and returns what was saved.

    A checkpoint of that name is replaced.
    """
    began = time.monotonic()
    final = checkpoints / f"step-{snapshot.step}"
    draft = checkpoints / f"{final.name}.tmp-{writer.nonce}"
    draft.mkdir(parents=True, exist_ok=True)
    write_part(draft, writer.rank, snapshot.pieces)
    if writer.rank != 0:
        await_collection(draft, writer.rank)
        return None
    manifest = _described(draft, snapshot, origin, writer.ranks)
    digest = write_manifest(draft, manifest)
    replace_folder(draft, final)
    size = sum(entry.bytes for entry in manifest.files)
    return Saved(snapshot.step, final, digest, size, time.monotonic() - began)


def write_manifest(folder: Path, manifest: CheckpointManifest) -> str:
    """Write the manifest, last of all files in ``folder``; returns its digest."""
    content = manifest.to_bytes()
    draft = folder / f"{MANIFEST_NAME}.tmp"
    write_hashed(draft, [content])
    draft.rename(folder / MANIFEST_NAME)
    sync_folder(folder)
    return digest_of(content)


def replace_folder(draft: Path, final: Path) -> None:
    """Give a complete folder its name, durably; what had the name before goes."""
    old = final.with_name(f"{final.name}.old-{uuid4().hex[:12]}")
    if final.exists():
        final.rename(old)
    draft.rename(final)
    sync_folder(final.parent)
    if old.exists():
        shutil.rmtree(old)


def code_version() -> str:
    return version("trainwright")


def _described(draft: Path, snapshot: Snapshot, origin: Origin, ranks: int) -> CheckpointManifest:
    """The manifest of what all ranks have written."""
    whole = collect_parts(draft, ranks)
    return CheckpointManifest(
        kind=CheckpointKind.STATE,
        step=snapshot.step,
        files=whole.files,
        config_digest=origin.config_digest,
        code_version=code_version(),
        world_size=origin.world_size,
        parent_digest=origin.parent_digest,
        tensors=whole.tensors,
        state=snapshot.state,
    )
