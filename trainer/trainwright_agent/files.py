"""Reading where a trainer can write, and writing so that a crash leaves the old or the new.

A trainer's folder is foreign ground: a symlink planted there must not make the agent read or ship a file of the
node. So every path below such a folder is walked one plain name at a time with ``O_NOFOLLOW``, and only regular
files are read. Names that come from files (manifests, event lines) are checked by `contracts.file_names` before use.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


class UnsafeFileError(OSError):
    """Something else than a regular file or folder stands where one was expected."""


@contextmanager
def opened_file(root: Path, *names: str) -> Iterator[int]:
    """A descriptor of the regular file ``root/names…``, reached without following a symlink below ``root``.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: a symlink or something that is no regular file is in the way.
    """
    with opened_folder(root, *names[:-1]) as folder:
        # O_NONBLOCK: opening a FIFO must not wait for its writer.
        descriptor = os.open(
            names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
        )
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnsafeFileError(f"{'/'.join(names)} is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(root: Path, *names: str) -> Iterator[int]:
    """A descriptor of the folder ``root/names…``, reached without following a symlink below ``root``."""
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
    """Content of a file below ``root``; None when it is missing, larger than the limit, or not safe to read."""
    try:
        with opened_file(root, *names) as descriptor:
            if os.fstat(descriptor).st_size > limit_bytes:
                return None
            return read_stretch(descriptor, 0, limit_bytes)
    except OSError:
        return None


def read_stretch(descriptor: int, offset: int, limit_bytes: int) -> bytes:
    """Up to ``limit_bytes`` from ``offset``; short only at the end of the file."""
    parts = []
    while limit_bytes > 0 and (part := os.pread(descriptor, min(limit_bytes, 2**20), offset)):
        parts.append(part)
        offset += len(part)
        limit_bytes -= len(part)
    return b"".join(parts)


def write_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace ``path`` so that after a crash it holds the old or the new content, and after the return the new."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def is_disk_full(error: BaseException) -> bool:
    """Whether what failed is room, or the user's share of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def sync_folder(path: Path) -> None:
    """Make renames in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
