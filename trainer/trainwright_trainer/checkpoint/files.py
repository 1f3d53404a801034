"""Files that survive a crash and can be checked: hashed as they are written, synced before they are named.

Tensors are written as safetensors (an 8-byte length, a JSON header, raw bytes) straight from memory, and nothing is
copied. Hashing takes a core about as long as writing takes the disk, so the two go on side by side.

They are read straight into the memory that asks for them. A map of the file would cost a fault every few pages, and the
process its life where a file turns out to be shorter than it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainwright.contracts.checkpoint import FileEntry

_DTYPES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.uint8: "U8",
}
"""What safetensors calls the number formats that a state may be held in."""

DTYPE_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in _DTYPES}
"""What manifests call them."""

_STORED_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}
_READ_TOGETHER_BYTES = 2**24
"""The most that is read of a tensor of which only some columns are asked for."""

_HEADERS_KEPT = 64


class TornFileError(ValueError):
    """A file of tensors is not what its header says, or its header cannot be read."""


@dataclass(frozen=True)
class Stored:
    """Where a tensor lies in its file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Write contiguous CPU tensors as one safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    raw = (tensor.reshape(-1).view(torch.uint8).numpy().data for tensor in tensors.values())
    return write_hashed(path, [len(head).to_bytes(8, "little"), head, *raw])


def write_hashed(path: Path, parts: Sequence[bytes | memoryview]) -> FileEntry:
    """Write ``parts`` one after the other, synced to disk; they must not change meanwhile."""
    with ThreadPoolExecutor(1, "hashing") as beside, path.open("wb") as file:
        digest = beside.submit(_hash, parts)
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(name=path.name, bytes=sum(len(part) for part in parts), digest=digest.result())


def stored_tensors(path: Path) -> Mapping[str, Stored]:
    """What the header of a safetensors file says.

    Raises:
        TornFileError: it cannot be read, or a tensor would lie beyond the file's end.
        OSError: the file cannot be read.
    """
    state = path.stat()
    return _header(path, state.st_size, (state.st_ino, state.st_mtime_ns))


def read_box(path: Path, stored: Stored, box: tuple[slice, ...], into: Tensor) -> None:
    """Fill ``into``, a CPU tensor or a part of one, with ``box`` of ``stored``; both have the same shape and dtype.

    Raises:
        TornFileError: the file ends before.
    """
    whole_rows = all(cut == slice(0, size) for cut, size in zip(box[1:], stored.shape[1:], strict=True))
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
def _header(path: Path, size: int, _identity: tuple[int, int]) -> dict[str, Stored]:
    """``_identity`` makes another file of the same name another question."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            told = json.loads(file.read(min(length, size)))
        start = 8 + length
        return {name: _stored(entry, start, size) for name, entry in told.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TornFileError(f"{path.name}: its header cannot be read") from error


def _stored(entry: dict[str, Any], start: int, size: int) -> Stored:
    first, end = entry["data_offsets"]
    stored = Stored(_STORED_DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])), start + int(first))
    if first < 0 or end - first != prod(stored.shape) * stored.dtype.itemsize or start + end > size:
        raise ValueError("a tensor has not the bytes of its shape")
    return stored


def _fill(descriptor: int, tensor: Tensor, offset: int) -> None:
    """Read contiguous ``tensor`` from ``offset`` on; one call reads 2 GiB at most."""
    left = tensor.reshape(-1).view(torch.uint8).numpy().data
    while left:
        count = os.preadv(descriptor, [left], offset)
        if not count:
            raise TornFileError("a file of tensors ends too early")
        left, offset = left[count:], offset + count


def _hash(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _fetch_ahead(descriptor: int) -> None:
    """Let the kernel read the file while its first bytes are hashed. Not every system can be told."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
