"""``events.jsonl``: one JSON object per line, each written by a single call, in the order of the events."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from pydantic_core import to_json

from trainwright.contracts.events import TrainerEvent

Report = Callable[[TrainerEvent], None]


class EventWriter:
    """The writer of a node's first rank, also used by the checkpoint writer's thread."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        self._lock = threading.Lock()

    def write(self, event: TrainerEvent) -> None:
        line = to_json(event, exclude_none=True) + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]


def ignore_event(event: TrainerEvent) -> None:
    """The ``Report`` of the other ranks."""


def now() -> datetime:
    return datetime.now(UTC)
