"""Writing files so that neither a crash nor a power cut leaves half of one.

A file is written under a temporary name in the folder of its target, synced to disk, renamed, and the folder is synced.
So a reader sees the old content or the new one, and after the return the new one survives. Every package uses this
module, so it imports the standard library only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO
from uuid import uuid4

PRIVATE = 0o600
"""Readable by the owner only."""

SHARED = 0o666
"""Readable as the process's umask allows."""


def write_durably(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Replace the file at ``path`` atomically.

    Args:
        path: the file; its folder exists.
        content: all of it.
        mode: permissions of the new file, less the umask.
    """
    with open_durably(path, mode) as file:
        file.write(content)


@contextmanager
def open_durably(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` atomically when the block ends, and is removed when it raises."""
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, mode), "wb") as file:
            yield file
            sync_file(file)
        rename_durably(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file or folder within its parent folder, replacing a file at ``target``.

    As soon as ``target`` is visible, another process may rename the parent folder.
    """
    with _synced(target.parent):
        source.replace(target)


def make_folder_durably(folder: Path) -> None:
    """Create ``folder`` and its missing parents."""
    if folder.is_dir():
        return
    make_folder_durably(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_file(file: IO[bytes]) -> None:
    """Flush an open file to disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    with _synced(folder):
        pass


@contextmanager
def _synced(folder: Path) -> Iterator[None]:
    """Make the names in ``folder`` durable at the end of the block, even if the folder itself was renamed meanwhile."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed because the disk, or the user's quota on it, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
