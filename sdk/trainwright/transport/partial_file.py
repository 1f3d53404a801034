"""A file that arrives in parts and gets its name once its digest is right."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from trainwright.transport.errors import DigestMismatchError

BLOCK_BYTES = 1 << 20


class PartialFile:
    """The bytes of ``target`` that have arrived, under a temporary name beside it. They are kept for a later download.

    Args:
        target: where the complete file belongs. An existing file is replaced only by `finish`.
        size_bytes: its size.
        digest: its SHA-256 in hexadecimal. The temporary name contains its beginning.

    Raises:
        BlockingIOError: another download of the same file is in progress.
    """

    def __init__(self, target: Path, size_bytes: int, digest: str) -> None:
        self.target = target
        self.size_bytes = size_bytes
        self.received = 0
        self._digest = digest
        self._sha = hashlib.sha256()
        self._path = target.with_name(f".{target.name}.{digest[:16]}.part")
        self._out = self._path.open("a+b")
        if not _lock(self._out):
            self._out.close()
            raise BlockingIOError(f"Another download of {target} is in progress.")
        self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.close()
        if not self.received or isinstance(error, DigestMismatchError):
            self._path.unlink(missing_ok=True)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes have arrived."""
        return self.received >= self.size_bytes

    def add(self, block: bytes) -> None:
        """Append ``block``."""
        self._out.write(block)
        self._sha.update(block)
        self.received += len(block)

    def restart(self) -> None:
        """Discard all bytes."""
        self._out.seek(0)
        self._out.truncate()
        self._sha = hashlib.sha256()
        self.received = 0

    def finish(self) -> None:
        """Give the complete file its name.

        Raises:
            DigestMismatchError: its SHA-256 differs.
        """
        if (found := self._sha.hexdigest()) != self._digest:
            raise DigestMismatchError(f"{self.target.name}: its SHA-256 is {found} instead of {self._digest}")
        self._out.close()
        self._path.replace(self.target)

    def _read(self) -> None:
        """Hash what an earlier download has left."""
        self._out.seek(0)
        while block := self._out.read(BLOCK_BYTES):
            self._sha.update(block)
            self.received += len(block)
        if self.received > self.size_bytes:
            self.restart()


def _lock(file: IO[bytes]) -> bool:
    """Whether no other process has ``file``, as far as the system can tell."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems have none either
        return True
    return True
