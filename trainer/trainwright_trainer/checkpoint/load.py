"""Reading checkpoints: no restored state is used, and no step is made, before every byte is verified.

The manifest must have the digest that the job names, each file the size and digest that the manifest names, and the
tensors the names, shapes and number formats of this run's state. The ranks divide the hashing among them. If one finds
a fault, all refuse the checkpoint. Sizes are compared first. Digests are computed in threads while tensors are already
being restored (``verifying``), since hashing takes as long as everything else. A wrong digest is reported instead of
any other error that the damage caused.

A tensor may be stored in few bits, with its scale in another tensor. ``read_stored`` returns the bits,
from which training resumes exactly; ``read_tensor`` returns the real numbers of any format.
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
    TensorEntry,
    TensorSlice,
    block_scale_name,
    digest_of,
)
from trainwright.contracts.token_shards import MANIFEST_NAME
from trainwright_trainer.checkpoint.broadcast import fill, fill_on_all
from trainwright_trainer.checkpoint.tensor_files import (
    DTYPE_NAMES,
    CorruptFileError,
    hash_file,
    read_box,
    stored_tensors,
)
from trainwright_trainer.data.position import DataPosition
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import Slice, full_slice
from trainwright_trainer.optim.updater import StateTensor, Updater
from trainwright_trainer.runtime.errors import CheckpointInvalidError

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}
_HASHED_TOGETHER = 4
"""Files: a core hashes more slowly than a good disk reads."""

_SCALED_TOGETHER = 128
"""Elements per scale, for tensors with several scales; see ``contracts.checkpoint.TensorEntry``."""

_ReadPart = Callable[[TensorSlice, tuple[slice, ...], Tensor], None]
"""Reads a box of a stored slice into a tensor of its shape."""


def read_checkpoint(folder: Path, config_digest: str | None, digest: str | None) -> CheckpointManifest:
    """Read and check the manifest.

    Args:
        folder: of the checkpoint.
        config_digest: of the configuration that it must have; None for another run's, whose tensors must fit
            (``check_fits``).
        digest: of the manifest; None for one written here.

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
    """Compare sizes and digests of ``files`` with the disk.

    Raises:
        CheckpointInvalidError: names the first file that differs.
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
    """Verify all files, a share per rank of this node, while the body reads them. It exits normally only if all ranks
    found no fault.

    Until then the data may be wrong, and the body must not use it.

    Raises:
        CheckpointInvalidError: some file differs. It replaces any error of the body, which the damage may
            have caused.
    """
    _verify_sizes(folder, manifest.files)
    own_files = manifest.files[mesh.rank - mesh.on_node.start :: len(mesh.on_node)]
    read = False
    with _one_thread(), ThreadPoolExecutor(_HASHED_TOGETHER, "hashing") as threads:
        faults = threads.map(partial(_fault, folder), own_files)
        try:
            yield
            read = True
        finally:
            fault = next((fault for fault in faults if fault is not None), None)
            if read:
                _agree(folder, fault, mesh, "a file that does not match the manifest")
            elif fault is not None:
                raise fault
            else:  # the other ranks may be anywhere by now and cannot be asked
                verify_files(folder, [entry for entry in manifest.files if entry not in own_files])


@contextmanager
def _one_thread() -> Iterator[None]:
    """While hashing keeps the cores busy, torch's threads would mostly wait for each other: copying would
    cost twice as much.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _agree(folder: Path, fault: CheckpointInvalidError | None, mesh: Mesh, kind: str) -> None:
    """If one rank found a fault of this kind, raise it on all ranks."""
    try:
        faults = mesh.world.all_reduce(torch.tensor(float(fault is not None), device=mesh.device))
    finally:
        if fault is not None:
            raise fault
    if faults > 0:
        raise CheckpointInvalidError(f"{folder.name}: another rank found {kind}")


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


def restore(folder: Path, manifest: CheckpointManifest, updater: Updater, mesh: Mesh) -> None:
    """Restore ``updater`` from a checkpoint that is verified or being verified, with one tensor at a time in
    host memory. All ranks must call it: of ranks that have a tensor alike, one reads it.

    Raises:
        CheckpointInvalidError: it is not the state of a run like this one.
    """
    check_fits(folder, manifest, updater, mesh)
    updater.restore(_Reader(folder, manifest), manifest.state)


def check_fits(folder: Path, manifest: CheckpointManifest, updater: Updater, mesh: Mesh) -> None:
    """Compare names, shapes and number formats with those of this run. All ranks must call it: each looks at the tensors that
    it would write.

    Raises:
        CheckpointInvalidError: some tensor differs; the rank that would write it names it.
    """
    fault = None
    try:
        _check_fits(folder, manifest, updater)
    except CheckpointInvalidError as error:
        fault = error
    _agree(folder, fault, mesh, "a tensor that does not fit this run")


def _check_fits(folder: Path, manifest: CheckpointManifest, updater: Updater) -> None:
    held = updater.state()
    # Another layout's blocks have other scales; they are checked when they are read.
    of_blocks = {block_scale_name(item.scale, *item.box) for item in held if item.scale}
    for item in held:
        if item.name not in of_blocks:
            _check_alike(folder, manifest.tensors.get(item.name), item)
    for name in updater.scalars():
        if name not in manifest.state:
            raise CheckpointInvalidError(f"{folder.name}: its state does not contain {name}")


def data_position_of(folder: Path, manifest: CheckpointManifest) -> DataPosition:
    """The position in the data.

    Raises:
        CheckpointInvalidError: the manifest does not say.
    """
    try:
        return DataPosition(manifest.step, int(manifest.state["sequences"]), int(manifest.state["tokens"]))
    except KeyError as error:
        raise CheckpointInvalidError(f"{folder.name}: its state does not contain {error.args[0]}") from error


class _Reader:
    """``ReadTensor`` of a checkpoint."""

    def __init__(self, folder: Path, manifest: CheckpointManifest) -> None:
        self._folder = folder
        self._manifest = manifest

    def __call__(self, name: str, box: Slice) -> Tensor:
        return read_stored(self._folder, self._manifest, name, box)

    def into(self, target: Tensor, name: str, box: Slice, alike: Axis | None = None) -> None:
        read = partial(read_stored, self._folder, self._manifest, name, box)
        if alike is None or alike.ranks == 1:
            fill(target, read())
        else:
            fill_on_all(target, read, alike)

    def dequantized(self, name: str, box: Slice) -> Tensor:
        return read_dequantized(self._folder, self._manifest, name, box)

    def is_stored_slice(self, name: str, box: Slice) -> bool:
        entry = self._manifest.tensors.get(name)
        return entry is not None and any(
            (entry.shape, stored_slice.offset, stored_slice.shape) == box for stored_slice in entry.slices
        )


def read_tensor(folder: Path, manifest: CheckpointManifest, name: str, shape: Sequence[int]) -> Tensor:
    """Read the real numbers of one tensor, float32, from files that are verified or being verified.

    Raises:
        CheckpointInvalidError: it or its scale is missing, has another shape, or its slices do not fill it.
    """
    return read_dequantized(folder, manifest, name, full_slice(shape))


def read_dequantized(folder: Path, manifest: CheckpointManifest, name: str, box: Slice) -> Tensor:
    """Read a box of the real numbers of one tensor, float32; errors are those of ``read_tensor``.

    Scales of blocks belong to stored slices, which are then read in full.
    """
    entry = _entry_of(folder, manifest, name, box)
    if entry.scale is None:
        return read_stored(folder, manifest, name, box).float()
    of_tensor = manifest.tensors.get(entry.scale)
    if of_tensor is not None and not of_tensor.shape:
        scale = read_stored(folder, manifest, entry.scale, full_slice(()))
        return read_stored(folder, manifest, name, box).float() * scale

    def read(stored_slice: TensorSlice, part: tuple[slice, ...], into: Tensor) -> None:
        location = Slice(entry.shape, stored_slice.offset, stored_slice.shape)
        codes = read_stored(folder, manifest, name, location)
        scale = block_scale_name(entry.scale or "", *location)
        blocks = (-(-codes.numel() // _SCALED_TOGETHER),)
        if scale not in manifest.tensors or manifest.tensors[scale].shape != blocks:
            raise CheckpointInvalidError(f"{folder.name}: {scale} is missing or does not fit {name}")
        scales = read_stored(folder, manifest, scale, full_slice(blocks))
        into.copy_(_scaled(codes, scales)[part])

    return _assemble(folder, name, entry, box, torch.float32, read)


def read_stored(folder: Path, manifest: CheckpointManifest, name: str, box: Slice) -> Tensor:
    """Assemble ``box`` of one tensor, as stored, from the slices that overlap it.

    Raises:
        CheckpointInvalidError: it is missing, has another shape, or its slices do not fill the box.
    """
    entry = _entry_of(folder, manifest, name, box)

    def read(stored_slice: TensorSlice, part: tuple[slice, ...], into: Tensor) -> None:
        _read_slice(folder, name, stored_slice, part, into)

    return _assemble(folder, name, entry, box, _DTYPES[entry.dtype], read)


def _entry_of(folder: Path, manifest: CheckpointManifest, name: str, box: Slice) -> TensorEntry:
    entry = manifest.tensors.get(name)
    if entry is None or entry.shape != box.full_shape:
        raise CheckpointInvalidError(
            f"{folder.name}: {name} is missing or does not have the shape {box.full_shape}"
        )
    if entry.dtype not in _DTYPES:
        raise CheckpointInvalidError(f"{folder.name}: {name} is stored as {entry.dtype}, which is unknown")
    if not {file.name for file in manifest.files}.issuperset(
        stored_slice.file for stored_slice in entry.slices
    ):
        raise CheckpointInvalidError(f"{folder.name}: {name} is in a file that the manifest does not list")
    return entry


def _check_alike(folder: Path, entry: TensorEntry | None, held: StateTensor) -> None:
    """Compare a tensor of this run's state with the checkpoint's."""
    if entry is None:
        raise CheckpointInvalidError(f"{folder.name}: {held.name} is missing")
    for what, stored, wanted in (
        ("shape", entry.shape, held.box.full_shape),
        ("number format", entry.dtype, DTYPE_NAMES[held.tensor.dtype]),
        ("scale", entry.scale, held.scale),
    ):
        if stored != wanted:
            raise CheckpointInvalidError(
                f"{folder.name}: {held.name} has the {what} {stored}, but this run has {wanted}"
            )


def _assemble(
    folder: Path, name: str, entry: TensorEntry, box: Slice, dtype: torch.dtype, read: _ReadPart
) -> Tensor:
    """Fill ``box`` with the results of ``read`` for the slices that overlap it."""
    tensor = torch.empty(box.shape, dtype=dtype)
    filled = 0
    for stored_slice in entry.slices:
        if any(
            first + size > end
            for first, size, end in zip(stored_slice.offset, stored_slice.shape, entry.shape, strict=True)
        ):
            raise CheckpointInvalidError(f"{folder.name}: a slice of {name} extends beyond it")
        into, out_of = _overlap(box, stored_slice)
        part = tensor[into]
        if part.numel():
            read(stored_slice, out_of, part)
            filled += part.numel()
    if filled != tensor.numel():
        raise CheckpointInvalidError(f"{folder.name}: the slices of {name} do not fill it")
    return tensor


def _overlap(box: Slice, stored_slice: TensorSlice) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The intersection of ``box`` and ``stored_slice``, as indices into each; empty if there is none."""
    into, out_of = [], []
    for box_first, box_size, slice_first, slice_size in zip(
        box.offset, box.shape, stored_slice.offset, stored_slice.shape, strict=True
    ):
        first = max(box_first, slice_first)
        end = max(first, min(box_first + box_size, slice_first + slice_size))
        into.append(slice(first - box_first, end - box_first))
        out_of.append(slice(first - slice_first, end - slice_first))
    return tuple(into), tuple(out_of)


def _read_slice(
    folder: Path, name: str, stored_slice: TensorSlice, box: tuple[slice, ...], into: Tensor
) -> None:
    path = folder / stored_slice.file
    try:
        stored = stored_tensors(path).get(name)
        if stored is None or (stored.shape, stored.dtype) != (stored_slice.shape, into.dtype):
            raise CheckpointInvalidError(
                f"{folder.name}: {name} in {stored_slice.file} is not what the manifest says"
            )
        read_box(path, stored, box, into)
    except (CorruptFileError, FileNotFoundError) as error:
        raise CheckpointInvalidError(
            f"{folder.name}: {name} cannot be read from {stored_slice.file}"
        ) from error


def _scaled(stored: Tensor, scale: Tensor) -> Tensor:
    """``stored`` · ``scale``, float32."""
    if not scale.ndim:
        return stored.float() * scale
    flat = stored.float().flatten()
    scales = scale.repeat_interleave(_SCALED_TOGETHER)[: flat.numel()]
    return (flat * scales).view(stored.shape)
