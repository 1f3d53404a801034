"""Copies of files that are independent of the original, made without moving data if the file system supports it.

A hard link would share the file itself, so writing to one would change the other. File systems such as btrfs and XFS
clone a file by reference, and separate the two when either is written (FICLONE).
"""

from __future__ import annotations

import errno
import fcntl
import os

_FICLONE = 0x40049409
_CANNOT_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)
_BLOCK_BYTES = 8 * 2**20


def copy_file(source: int, target: int, size_bytes: int) -> None:
    """Copy the open file ``source`` to the empty open file ``target``.

    Args:
        size_bytes: the expected size. Of a larger file at most one byte more is copied, so that its copy shows it.
    """
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
        _copy_bytes(source, target, size_bytes + 1)


def _copy_bytes(source: int, target: int, most_bytes: int) -> None:
    offset = 0
    while block := os.pread(source, min(_BLOCK_BYTES, most_bytes - offset), offset):
        view = memoryview(block)
        while view:
            written = os.pwrite(target, view, offset)
            view, offset = view[written:], offset + written
