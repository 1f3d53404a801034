"""Writing checkpoints, behind the training's back and so that a crash at any instant leaves none that is half done.

    step-20.tmp-…/tensors-00000.safetensors, …   written, hashed, synced
    step-20.tmp-…/manifest.json                  last, by a rename: names, sizes and digests of the rest
    step-20/                                     the folder gets its name when everything in it is on disk

A folder without a manifest is no checkpoint, and neither is one whose manifest does not match.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

from trainwright.contracts.checkpoint import (
    CheckpointKind,
    CheckpointManifest,
    FileEntry,
    Piece,
    TensorEntry,
    digest_of,
)
from trainwright.contracts.shards import MANIFEST_NAME
from trainwright_trainer.checkpoint.files import sync_folder, write_hashed, write_tensors
from trainwright_trainer.checkpoint.snapshot import HeldPiece, Snapshot

FILE_BYTES = 2**30
"""A file of tensors is closed when it has reached this size."""


@dataclass(frozen=True)
class Origin:
    """What a manifest tells of the training that it comes from."""

    config_digest: str
    world_size: int
    parent_digest: str | None


@dataclass(frozen=True)
class Saved:
    """A complete checkpoint."""

    step: int
    folder: Path
    digest: str
    bytes: int
    seconds: float


class Saver:
    """Writes one snapshot at a time in a thread of its own."""

    def __init__(self, folder: Path, origin: Origin, when_saved: Callable[[Saved], None]) -> None:
        self._folder = folder
        self._origin = origin
        self._when_saved = when_saved
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def save(self, take: Callable[[], Snapshot]) -> None:
        """Take a snapshot and begin to write it; waits first for the one before, so that two never share the memory.

        Raises what that one failed with.
        """
        self.wait()
        self._writing = self._thread.submit(self._write, take())

    def check(self) -> None:
        """Raise the error of a write that has failed."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self._writing is not None:
            self._writing.result()
            self._writing = None

    def _write(self, snapshot: Snapshot) -> None:
        self._when_saved(save_checkpoint(self._folder, snapshot, self._origin))


def save_checkpoint(checkpoints: Path, snapshot: Snapshot, origin: Origin) -> Saved:
    """Write ``snapshot`` as ``step-<n>`` below ``checkpoints``; one of that name is replaced."""
    began = time.monotonic()
    final = checkpoints / f"step-{snapshot.step}"
    draft = checkpoints / f"{final.name}.tmp-{uuid4().hex[:12]}"
    draft.mkdir(parents=True)
    manifest = _write_tensors(draft, snapshot, origin)
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


def _write_tensors(draft: Path, snapshot: Snapshot, origin: Origin) -> CheckpointManifest:
    files: list[FileEntry] = []
    tensors: dict[str, TensorEntry] = {}
    for index, pieces in enumerate(_files(snapshot.pieces)):
        path = draft / f"tensors-{index:05d}.safetensors"
        files.append(write_tensors(path, {piece.name: piece.tensor for piece in pieces}))
        tensors |= {piece.name: _entry(piece, path.name) for piece in pieces}
    return CheckpointManifest(
        kind=CheckpointKind.STATE,
        step=snapshot.step,
        files=files,
        config_digest=origin.config_digest,
        code_version=code_version(),
        world_size=origin.world_size,
        parent_digest=origin.parent_digest,
        tensors=tensors,
        state=snapshot.state,
    )


def _files(pieces: list[HeldPiece]) -> Iterator[list[HeldPiece]]:
    held: list[HeldPiece] = []
    for piece in pieces:
        held.append(piece)
        if sum(one.tensor.nbytes for one in held) >= FILE_BYTES:
            yield held
            held = []
    if held:
        yield held


def _entry(piece: HeldPiece, file: str) -> TensorEntry:
    lies = Piece(file=file, start=piece.start, shape=tuple(piece.tensor.shape))
    return TensorEntry(shape=piece.whole, dtype=str(piece.tensor.dtype).removeprefix("torch."), pieces=[lies])
