"""Copies of objects on local disk, within a limit. The least recently used ones go first."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from trainwright_backend.core.object_store import INCOMING

IN_USE_SECONDS = 3_600.0
"""A file that was found so recently may be open or about to be opened, and stays even beyond the limit."""


class FileCache:
    """Files by name, in the folder ``cached`` of ``local``."""

    def __init__(self, local: Path, limit_bytes: int) -> None:
        self._folder = local / "cached"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._incoming = local / INCOMING
        self._limit = limit_bytes

    def find(self, name: str) -> Path | None:
        """The file of this name, now the most recently used one."""
        path = self._folder / name
        with suppress(FileNotFoundError):
            os.utime(path)
            return path
        return None

    def add(self, name: str, write: Callable[[Path], None]) -> Path:
        """Have ``write`` create the file; it replaces one that another process added meanwhile."""
        draft = self._incoming / uuid4().hex
        try:
            write(draft)
            draft.replace(self._folder / name)
        finally:
            draft.unlink(missing_ok=True)
        self._trim()
        return self._folder / name

    def _trim(self) -> None:
        found = []
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        for used, size, path in sorted(found):
            if total <= self._limit or time.time() - used < IN_USE_SECONDS:
                return
            path.unlink(missing_ok=True)
            total -= size
