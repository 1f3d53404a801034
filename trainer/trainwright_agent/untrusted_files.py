"""Reading files that a trainer can write.

A trainer's folder is not trusted: a symlink in it must not make the agent read or send another file of the node. So
every path below such a folder is opened one name at a time with ``O_NOFOLLOW``, and only regular files are read. Names
that come from files (manifests, event lines) are checked with `contracts.file_names` before use.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UnsafeFileError(OSError):
    """The path does not lead to a regular file."""


@contextmanager
def opened_file(root: Path, *names: str) -> Iterator[int]:
    """Open the regular file ``root/names…`` without following symlinks below ``root``.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: the path contains a symlink, or does not lead to a regular file.
    """
    with opened_folder(root, *names[:-1]) as folder:
        # O_NONBLOCK: opening a FIFO must not wait for its writer.
        descriptor = os.open(
            names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnsafeFileError(f"{'/'.join(names)} is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(root: Path, *names: str) -> Iterator[int]:
    """Open the folder ``root/names…`` without following symlinks below ``root``."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def read_small(root: Path, *names: str, limit_bytes: int = 16 * 2**20) -> bytes | None:
    """Content of a file below ``root``; None if it is missing, larger than the limit, or not safe to read."""
    try:
        with opened_file(root, *names) as descriptor:
            if os.fstat(descriptor).st_size > limit_bytes:
                return None
            return read_chunk(descriptor, 0, limit_bytes)
    except OSError:
        return None


def read_chunk(descriptor: int, offset: int, limit_bytes: int) -> bytes:
    """Read ``limit_bytes`` from ``offset``, or fewer at the end of the file."""
    parts = []
    while limit_bytes > 0 and (part := os.pread(descriptor, min(limit_bytes, 2**20), offset)):
        parts.append(part)
        offset += len(part)
        limit_bytes -= len(part)
    return b"".join(parts)
