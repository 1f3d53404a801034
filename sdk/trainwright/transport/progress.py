"""Progress of uploads and downloads, in bytes."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes."""


class ProgressMeter:
    """Adds up the bytes that are done and reports them."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self._total = total
        self._on_progress = on_progress
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
        if self._on_progress is not None:
            self._on_progress(self.done, self._total)
