"""A checkpoint as one tar, made while it is sent: no second copy on disk, memory of one buffer.

A tar of plain files has a size that follows from theirs (a header of 512 bytes, content padded to 512, two empty
blocks at the end), so the browser is told it beforehand and shows the time left.
"""

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright_backend.core.storage import LocalStore


@dataclass(frozen=True)
class Member:
    """One file of the archive."""

    name: str
    bytes: int
    key: str


def archive_bytes(folder: str, members: Sequence[Member], at: datetime) -> int:
    """Size of the whole archive."""
    return sum(len(_header(folder, member, at)) + _padded(member.bytes) for member in members) + _END


def archive(store: LocalStore, folder: str, members: Sequence[Member], at: datetime) -> Iterator[bytes]:
    """The archive, a buffer at a time; its files lie in ``folder``."""
    for member in members:
        yield _header(folder, member, at)
        sent = 0
        for data in store.open_read(member.key, 0, member.bytes):
            sent += len(data)
            yield data
        if sent != member.bytes:
            raise OSError(f"{member.key} has {sent} bytes instead of {member.bytes}")
        yield bytes(_padded(member.bytes) - member.bytes)
    yield bytes(_END)


_END = 2 * tarfile.BLOCKSIZE


def _padded(count: int) -> int:
    return -(-count // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _header(folder: str, member: Member, at: datetime) -> bytes:
    entry = tarfile.TarInfo(f"{folder}/{member.name}")
    entry.size = member.bytes
    entry.mtime = int(at.timestamp())
    entry.mode = 0o644
    return entry.tobuf(tarfile.GNU_FORMAT)
