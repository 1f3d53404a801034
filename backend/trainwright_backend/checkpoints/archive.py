"""A checkpoint as one tar, created while it is sent: no second copy on disk, and one buffer in memory.

The size of a tar of plain files follows from their sizes (a header of 512 bytes, content padded to 512, two
empty blocks at the end), so the response announces it and the browser can show the remaining time.
"""

import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright_backend.core.object_store import ObjectStore


@dataclass(frozen=True)
class Member:
    """One file of the archive."""

    name: str
    bytes: int
    key: str


def archive_bytes(folder: str, members: Sequence[Member], at: datetime) -> int:
    """Size of the archive."""
    return sum(len(_header(folder, member, at)) + _padded(member.bytes) for member in members) + _END


def archive(store: ObjectStore, folder: str, members: Sequence[Member], at: datetime) -> Iterator[bytes]:
    """The archive, a buffer at a time; its files are in ``folder``."""
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
