"""Reading checkpoints: nothing leaves here, and no step is made, before every byte was checked.

The manifest must have the digest that the job names, each file the size and digest that the manifest names, and the
tensors the names, shapes and number formats of this run's state. The ranks share the hashing; if one finds a fault,
all refuse. Sizes are compared first. Digests are computed in threads while tensors are put in place already
(``verifying``): hashing takes as long as all the rest. A wrong digest is told in the place of whatever else the damage led to.

A tensor may be stored in few bits, to be multiplied by a scale that is another tensor. ``read_stored`` gives the bits,
from which training goes on exactly; ``read_tensor`` the real numbers, whatever they are stored in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from trainwright.contracts.checkpoint import (
    CheckpointKind,
    CheckpointManifest,
    FileEntry,
    Piece,
    TensorEntry,
    block_scale_name,
    digest_of,
)
from trainwright.contracts.shards import MANIFEST_NAME
from trainwright_trainer.checkpoint.files import (
    DTYPE_NAMES,
    TornFileError,
    hash_file,
    read_box,
    stored_tensors,
)
from trainwright_trainer.data.begun import Begun
from trainwright_trainer.ends import CheckpointInvalidError
from trainwright_trainer.mesh import Mesh
from trainwright_trainer.parts import Slice, whole
from trainwright_trainer.updater import StateTensor, Updater

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
_HASHED_TOGETHER = 4
"""Files: a core hashes more slowly than a good disk reads."""

_SCALED_TOGETHER = 128
"""Elements that share a number of a scale with more than one; see ``contracts.checkpoint.TensorEntry``."""

_ReadPart = Callable[[Piece, tuple[slice, ...], Tensor], None]
"""Reads a box of a piece into a tensor of its shape."""


def read_checkpoint(folder: Path, config_digest: str | None, digest: str | None) -> CheckpointManifest:
    """Read and check the manifest; ``digest`` is what it must hash to, None for one written here.

    Args:
        folder: of the checkpoint.
        config_digest: of the configuration that it must be of; None for that of another run, which must fit by its
            tensors (``check_fits``).
        digest: see above.

    Raises:
        CheckpointInvalidError: it is missing, damaged, of another kind, or of another configuration.
    """
    try:
        content = (folder / MANIFEST_NAME).read_bytes()
        manifest = CheckpointManifest.model_validate_json(content)
    except (OSError, ValidationError) as error:
        raise CheckpointInvalidError(f"{folder.name}: the manifest cannot be read") from error
    if digest is not None and digest_of(content) != digest:
        raise CheckpointInvalidError(f"{folder.name}: the manifest is not the one that was committed")
    if manifest.kind is not CheckpointKind.STATE or config_digest not in (None, manifest.config_digest):
        raise CheckpointInvalidError(f"{folder.name}: the checkpoint belongs to another configuration")
    return manifest


def verify_files(folder: Path, files: Sequence[FileEntry]) -> None:
    """Compare sizes and digests of ``files`` with what lies on disk.

    Raises:
        CheckpointInvalidError: naming the first file that differs.
    """
    _verify_sizes(folder, files)
    with ThreadPoolExecutor(_HASHED_TOGETHER, "hashing") as threads:
        faults = threads.map(partial(_fault, folder), files)
        fault = next((fault for fault in faults if fault is not None), None)
        threads.shutdown(cancel_futures=True)
    if fault is not None:
        raise fault


@contextmanager
def verifying(folder: Path, manifest: CheckpointManifest, mesh: Mesh) -> Iterator[None]:
    """Verify all files, a share a rank, while the body reads them. Left without an error, all ranks found all right.

    Until then what was read may be wrong: the body keeps it to itself.

    Raises:
        CheckpointInvalidError: some file differs. It replaces any error of the body, which the damage may have led to.
    """
    _verify_sizes(folder, manifest.files)
    mine = manifest.files[mesh.rank :: mesh.ranks]
    read = False
    with _one_thread(), ThreadPoolExecutor(_HASHED_TOGETHER, "hashing") as threads:
        faults = threads.map(partial(_fault, folder), mine)
        try:
            yield
            read = True
        finally:
            fault = next((fault for fault in faults if fault is not None), None)
            if read:
                _agree(folder, fault, mesh)
            elif fault is not None:
                raise fault
            else:  # the other ranks may be anywhere by now: they cannot be asked
                verify_files(folder, [entry for entry in manifest.files if entry not in mine])


@contextmanager
def _one_thread() -> Iterator[None]:
    """While hashing keeps the cores busy, torch's threads would mostly wait for each other, which costs twice the copying."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _agree(folder: Path, fault: CheckpointInvalidError | None, mesh: Mesh) -> None:
    """Refuse on all ranks what one of them found wrong."""
    try:
        faults = mesh.world.sum(torch.tensor(float(fault is not None), device=mesh.device))
    finally:
        if fault is not None:
            raise fault
    if faults > 0:
        raise CheckpointInvalidError(
            f"{folder.name}: another rank found a file that does not match the manifest"
        )


def _verify_sizes(folder: Path, files: Sequence[FileEntry]) -> None:
    for entry in files:
        path = folder / entry.name
        if path.name != entry.name or not path.is_file():
            raise CheckpointInvalidError(f"{folder.name}: {entry.name} is missing")
        if path.stat().st_size != entry.bytes:
            raise _differs(folder, entry)


def _fault(folder: Path, entry: FileEntry) -> CheckpointInvalidError | None:
    return None if hash_file(folder / entry.name) == entry.digest else _differs(folder, entry)


def _differs(folder: Path, entry: FileEntry) -> CheckpointInvalidError:
    return CheckpointInvalidError(f"{folder.name}: {entry.name} does not match the manifest")


def restore(folder: Path, manifest: CheckpointManifest, updater: Updater) -> None:
    """Fill ``updater`` from a checkpoint that is verified or being so, with one tensor at a time in host memory.

    Raises:
        CheckpointInvalidError: it is not the state of a run like this one.
    """
    check_fits(folder, manifest, updater)
    updater.restore(_Reader(folder, manifest), manifest.state)


def check_fits(folder: Path, manifest: CheckpointManifest, updater: Updater) -> None:
    """Compare names, shapes and number formats with those that this run holds.

    Raises:
        CheckpointInvalidError: naming the first tensor that differs.
    """
    held = updater.state()
    # Blocks of another layout have other scales; they are looked for where they are read.
    of_blocks = {block_scale_name(one.scale, *one.box) for one in held if one.scale}
    for one in held:
        if one.name not in of_blocks:
            _check_alike(folder, manifest.tensors.get(one.name), one)
    for number in updater.position():
        if number not in manifest.state:
            raise CheckpointInvalidError(f"{folder.name}: its position lacks {number}")


def place_in_data(folder: Path, manifest: CheckpointManifest) -> Begun:
    """How far the data had been read.

    Raises:
        CheckpointInvalidError: its position does not say.
    """
    try:
        return Begun(manifest.step, int(manifest.state["sequences"]), int(manifest.state["tokens"]))
    except KeyError as error:
        raise CheckpointInvalidError(f"{folder.name}: its position lacks {error.args[0]}") from error


class _Reader:
    """``ReadTensor`` of a checkpoint."""

    def __init__(self, folder: Path, manifest: CheckpointManifest) -> None:
        self._folder = folder
        self._manifest = manifest

    def __call__(self, name: str, box: Slice) -> Tensor:
        return read_stored(self._folder, self._manifest, name, box)

    def real(self, name: str, box: Slice) -> Tensor:
        return read_real(self._folder, self._manifest, name, box)

    def is_piece(self, name: str, box: Slice) -> bool:
        entry = self._manifest.tensors.get(name)
        return entry is not None and any(
            (entry.shape, piece.start, piece.shape) == box for piece in entry.pieces
        )


def read_tensor(folder: Path, manifest: CheckpointManifest, name: str, shape: Sequence[int]) -> Tensor:
    """Read the real numbers of one tensor, float32, from files that are verified or being so.

    Raises:
        CheckpointInvalidError: it or its scale is missing, has another shape, or its pieces do not fill it.
    """
    return read_real(folder, manifest, name, whole(shape))


def read_real(folder: Path, manifest: CheckpointManifest, name: str, box: Slice) -> Tensor:
    """Read a box of the real numbers of one tensor, float32; faults are those of ``read_tensor``.

    Scales of blocks belong to pieces, which are read whole where they have such.
    """
    entry = _entry_of(folder, manifest, name, box)
    if entry.scale is None:
        return read_stored(folder, manifest, name, box).float()
    of_tensor = manifest.tensors.get(entry.scale)
    if of_tensor is not None and not of_tensor.shape:
        scale = read_stored(folder, manifest, entry.scale, whole(()))
        return read_stored(folder, manifest, name, box).float() * scale

    def read(piece: Piece, part: tuple[slice, ...], into: Tensor) -> None:
        lies = Slice(entry.shape, piece.start, piece.shape)
        codes = read_stored(folder, manifest, name, lies)
        scale = block_scale_name(entry.scale or "", *lies)
        blocks = (-(-codes.numel() // _SCALED_TOGETHER),)
        if scale not in manifest.tensors or manifest.tensors[scale].shape != blocks:
            raise CheckpointInvalidError(f"{folder.name}: {scale} is missing or does not fit {name}")
        scales = read_stored(folder, manifest, scale, whole(blocks))
        into.copy_(_scaled(codes, scales)[part])

    return _assemble(folder, name, entry, box, torch.float32, read)


def read_stored(folder: Path, manifest: CheckpointManifest, name: str, box: Slice) -> Tensor:
    """Assemble ``box`` of one tensor, as it is stored, from the pieces that overlap it.

    Raises:
        CheckpointInvalidError: it is missing, has another shape, or its pieces do not fill the box.
    """
    entry = _entry_of(folder, manifest, name, box)

    def read(piece: Piece, part: tuple[slice, ...], into: Tensor) -> None:
        _read_piece(folder, name, piece, part, into)

    return _assemble(folder, name, entry, box, _DTYPES[entry.dtype], read)


def _entry_of(folder: Path, manifest: CheckpointManifest, name: str, box: Slice) -> TensorEntry:
    entry = manifest.tensors.get(name)
    if entry is None or entry.shape != box.whole:
        raise CheckpointInvalidError(f"{folder.name}: {name} is missing or has not the shape {box.whole}")
    if entry.dtype not in _DTYPES:
        raise CheckpointInvalidError(f"{folder.name}: {name} is stored as {entry.dtype}, which is unknown")
    if not {file.name for file in manifest.files}.issuperset(piece.file for piece in entry.pieces):
        raise CheckpointInvalidError(f"{folder.name}: {name} lies in a file that the manifest does not list")
    return entry


def _check_alike(folder: Path, entry: TensorEntry | None, held: StateTensor) -> None:
    """A tensor of this run's state, before it is restored, says what the checkpoint must have."""
    if entry is None:
        raise CheckpointInvalidError(f"{folder.name}: {held.name} is missing")
    for what, stored, wanted in (
        ("shape", entry.shape, held.box.whole),
        ("number format", entry.dtype, DTYPE_NAMES[held.tensor.dtype]),
        ("scale", entry.scale, held.scale),
    ):
        if stored != wanted:
            raise CheckpointInvalidError(
                f"{folder.name}: {held.name} has the {what} {stored}, but this run holds it with {wanted}"
            )


def _assemble(
    folder: Path, name: str, entry: TensorEntry, box: Slice, dtype: torch.dtype, read: _ReadPart
) -> Tensor:
    """Fill ``box`` from what ``read`` gives of the pieces that overlap it."""
    tensor = torch.empty(box.shape, dtype=dtype)
    filled = 0
    for piece in entry.pieces:
        if any(
            first + size > end for first, size, end in zip(piece.start, piece.shape, entry.shape, strict=True)
        ):
            raise CheckpointInvalidError(f"{folder.name}: a piece of {name} reaches beyond it")
        into, out_of = _overlap(box, piece)
        part = tensor[into]
        if part.numel():
            read(piece, out_of, part)
            filled += part.numel()
    if filled != tensor.numel():
        raise CheckpointInvalidError(f"{folder.name}: the pieces of {name} do not fill it")
    return tensor


def _overlap(box: Slice, piece: Piece) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """What ``box`` and ``piece`` have in common, as indices into the one and into the other; empty where nothing is."""
    into, out_of = [], []
    for box_first, box_size, piece_first, piece_size in zip(
        box.start, box.shape, piece.start, piece.shape, strict=True
    ):
        first = max(box_first, piece_first)
        end = max(first, min(box_first + box_size, piece_first + piece_size))
        into.append(slice(first - box_first, end - box_first))
        out_of.append(slice(first - piece_first, end - piece_first))
    return tuple(into), tuple(out_of)


def _read_piece(folder: Path, name: str, piece: Piece, box: tuple[slice, ...], into: Tensor) -> None:
    path = folder / piece.file
    try:
        stored = stored_tensors(path).get(name)
        if stored is None or (stored.shape, stored.dtype) != (piece.shape, into.dtype):
            raise CheckpointInvalidError(
                f"{folder.name}: {name} in {piece.file} is not what the manifest says"
            )
        read_box(path, stored, box, into)
    except (TornFileError, FileNotFoundError) as error:
        raise CheckpointInvalidError(f"{folder.name}: {name} cannot be read from {piece.file}") from error


def _scaled(stored: Tensor, scale: Tensor) -> Tensor:
    """``stored`` · ``scale``, float32."""
    if not scale.ndim:
        return stored.float() * scale
    flat = stored.float().flatten()
    scales = scale.repeat_interleave(_SCALED_TOGETHER)[: flat.numel()]
    return (flat * scales).view(stored.shape)
