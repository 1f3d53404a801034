"""Files that survive a crash and can be checked: hashed as they are written, synced before they are named.

Tensors are written as safetensors (an 8-byte length, a JSON header, raw bytes) straight from memory, and nothing is
copied. Hashing takes a core about as long as writing takes the disk, so the two go on side by side. Reading goes through the `safetensors` library, which checks the header.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        _fetch_ahead(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


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
