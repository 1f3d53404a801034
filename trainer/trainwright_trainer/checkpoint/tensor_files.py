"""Files of tensors that survive a crash and can be verified: hashed while they are written, synced before
they are renamed.

Tensors are written as safetensors (an 8-byte length, a JSON header, raw bytes) straight from memory, without a
copy. Hashing keeps a core busy about as long as writing does the disk, so they run in parallel.

Tensors are read straight into their destination. A memory map would cost a page fault every few pages, and
kill the process if a file is shorter than expected.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainwright.contracts.checkpoint import FileEntry
from trainwright.durable_files import sync_file

_DTYPES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.uint8: "U8",
}
"""safetensors' names of the number formats of a state."""

DTYPE_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in _DTYPES}
"""Their names in manifests."""

_STORED_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}
_READ_TOGETHER_BYTES = 2**24
"""The most bytes that are read at once from a tensor of which only some columns are needed."""

_HEADERS_KEPT = 64


class CorruptFileError(ValueError):
    """A file of tensors does not match its header, or its header cannot be read."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor is in its file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize


class TensorShape(NamedTuple):
    """What the header of a file says of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Write contiguous CPU tensors as one safetensors file."""
    shapes = {name: TensorShape(tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    return write_hashed(path, [_head(shapes), *map(_raw, tensors.values())])


def write_tensors_one_by_one(
    path: Path, shapes: Mapping[str, TensorShape], read: Callable[[str], Tensor]
) -> FileEntry:
    """``write_tensors`` of tensors that need not fit into memory together: ``read`` makes one, and its memory is freed
    once it is written.

    Args:
        shapes: of all of them, in the order of the file.
    """
    digest, count = hashlib.sha256(), 0
    with path.open("wb") as file:
        for part in _one_by_one(shapes, read):
            digest.update(part)
            count += file.write(part)
        sync_file(file)
    return FileEntry(name=path.name, bytes=count, digest=digest.hexdigest())


def _one_by_one(
    shapes: Mapping[str, TensorShape], read: Callable[[str], Tensor]
) -> Iterator[bytes | memoryview]:
    yield _head(shapes)
    for name, (dtype, shape) in shapes.items():
        tensor = read(name)
        assert tensor.dtype == dtype and tuple(tensor.shape) == shape, name
        yield _raw(tensor)


def _head(shapes: Mapping[str, TensorShape]) -> bytes:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in shapes.items():
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.bytes],
        }
        offset += tensor.bytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head


def _raw(tensor: Tensor) -> memoryview:
    raw: memoryview = tensor.reshape(-1).view(torch.uint8).numpy().data
    return raw


def write_hashed(path: Path, parts: Sequence[bytes | memoryview]) -> FileEntry:
    """Write ``parts`` one after the other and sync the file; they must not change in the meantime."""
    with ThreadPoolExecutor(1, "hashing") as hasher, path.open("wb") as file:
        digest = hasher.submit(_hash, parts)
        for part in parts:
            file.write(part)
        sync_file(file)
    return FileEntry(name=path.name, bytes=sum(len(part) for part in parts), digest=digest.result())


def stored_tensors(path: Path) -> Mapping[str, StoredTensor]:
    """The header of a safetensors file.

    Raises:
        CorruptFileError: it cannot be read, or a tensor would extend beyond the file's end.
        OSError: the file cannot be read.
    """
    state = path.stat()
    return _header(path, state.st_size, (state.st_ino, state.st_mtime_ns))


def read_box(path: Path, stored: StoredTensor, box: tuple[slice, ...], into: Tensor) -> None:
    """Fill ``into``, a CPU tensor or a view of one, with ``box`` of ``stored``; both have the same shape and dtype.

    Raises:
        CorruptFileError: the file is too short.
    """
    whole_rows = all(extent == slice(0, size) for extent, size in zip(box[1:], stored.shape[1:], strict=True))
    first = box[0].start if box else 0
    with path.open("rb", buffering=0) as file:
        if whole_rows and into.is_contiguous():
            _fill(file.fileno(), into, stored.offset + first * stored.row_bytes)
            return
        together = max(1, _READ_TOGETHER_BYTES // stored.row_bytes)
        for start in range(0, into.shape[0], together):
            part = into[start : start + together]
            rows = torch.empty(part.shape[0], *stored.shape[1:], dtype=stored.dtype)
            _fill(file.fileno(), rows, stored.offset + (first + start) * stored.row_bytes)
            part.copy_(rows[(slice(None), *box[1:])])


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        _fetch_ahead(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(_HEADERS_KEPT)
def _header(path: Path, size: int, _identity: tuple[int, int]) -> dict[str, StoredTensor]:
    """``_identity`` is part of the cache key: another file may get the same name."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(min(length, size)))
        start = 8 + length
        return {
            name: _stored(entry, start, size) for name, entry in entries.items() if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"{path.name}: its header cannot be read") from error


def _stored(entry: dict[str, Any], start: int, size: int) -> StoredTensor:
    first, end = entry["data_offsets"]
    stored = StoredTensor(_STORED_DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])), start + int(first))
    if first < 0 or end - first != prod(stored.shape) * stored.dtype.itemsize or start + end > size:
        raise ValueError("the size of a tensor does not match its shape")
    return stored


def _fill(descriptor: int, tensor: Tensor, offset: int) -> None:
    """Read contiguous ``tensor`` from ``offset`` on; one call reads at most 2 GiB."""
    left = tensor.reshape(-1).view(torch.uint8).numpy().data
    while left:
        count = os.preadv(descriptor, [left], offset)
        if not count:
            raise CorruptFileError("a file of tensors is too short")
        left, offset = left[count:], offset + count


def _hash(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _fetch_ahead(descriptor: int) -> None:
    """Let the kernel read ahead while the first bytes are hashed, on systems that support the hint."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
