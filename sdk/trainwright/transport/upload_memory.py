"""Remembers unfinished uploads on this machine, so that a later process can continue them."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

REMEMBER_SECONDS = 48 * 3600.0
"""Longer than the server keeps uploads."""


@dataclass(frozen=True)
class UploadMemory:
    """Remembers the upload of each file, in a JSON file."""

    path: Path

    @classmethod
    def of_user(cls) -> UploadMemory:
        """The memory in the user's cache folder (`XDG_CACHE_HOME`)."""
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(base) / "trainwright" / "uploads.json")

    def find(self, fingerprint: str) -> str | None:
        entry = self._read().get(fingerprint)
        return entry["upload"] if entry is not None else None

    def keep(self, fingerprint: str, upload: str) -> None:
        self._write(self._read() | {fingerprint: {"upload": upload, "time": time.time()}})

    def forget(self, fingerprint: str) -> None:
        entries = self._read()
        if entries.pop(fingerprint, None) is not None:
            self._write(entries)

    def _read(self) -> dict[str, dict[str, Any]]:
        """Entries that have not expired. A damaged file counts as empty."""
        try:
            entries = json.loads(self.path.read_text())
            oldest = time.time() - REMEMBER_SECONDS
            return {key: one for key, one in entries.items() if one["time"] > oldest and one["upload"]}
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return {}

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{uuid4().hex}")
        partial.write_text(json.dumps(entries))
        partial.replace(self.path)
