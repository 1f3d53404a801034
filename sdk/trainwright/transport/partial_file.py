"""A file that arrives in parts and gets its name once its digest is right."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from trainwright.transport.errors import DigestMismatchError


class PartialFile:
    """The bytes of ``target`` that have arrived, under a temporary name beside it, which is deleted at the end of the block.

    Args:
        target: where the complete file belongs. An existing file is replaced only by `finish`.
        size_bytes: its size.
        digest: its SHA-256 in hexadecimal.
    """

    def __init__(self, target: Path, size_bytes: int, digest: str) -> None:
        self.target = target
        self.size_bytes = size_bytes
        self._digest = digest
        self._path = target.with_name(f".{target.name}.{uuid4().hex}.part")
        self._out = self._path.open("wb")
        self.restart()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.close()
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
