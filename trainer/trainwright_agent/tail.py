"""Reading an attempt's growing files in stretches, each named by its byte offset.

``events.jsonl`` is read in whole lines (a torn last line waits, or is dropped when the attempt has ended). Numbers
become columns, because columns parse twenty times faster than objects; lines with the same series next to each
other form one block. Everything else stays a line and gets its end offset, by which a checkpoint names the events it
needs. Logs are raw bytes.

Nothing here remembers anything: the file is the spool and the API holds the offset, so sending a stretch again is
harmless and an agent that starts reads on from where the API is.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trainwright.contracts.agent_protocol import Batch, MetricBlock
from trainwright.contracts.events import CheckpointSaved
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import EVENTS_NAME, LOGS_FOLDER, OUTPUT_FOLDER
from trainwright_agent.files import opened_file, opened_folder, read_stretch

log = logging.getLogger(__name__)

STRETCH_BYTES = 256 * 2**10
"""Size of a stretch; a single longer line makes a longer one."""
_LONGEST_LINE_BYTES = 16 * 2**20
_NUMBERS = ("step", "validation")


@dataclass(frozen=True)
class SavedCheckpoint:
    """A ``checkpoint_saved`` line and where it ends."""

    line: CheckpointSaved
    end_offset: int


def read_batch(
    folder: Path, attempt: int, fence: int, offset: int, limit_bytes: int = STRETCH_BYTES
) -> Batch | None:
    """The next stretch of complete lines of the events, from ``offset``; None when there is none.

    Args:
        folder: the attempt's.
        attempt: its number.
        fence: the attempt's.
        offset: where the stretch begins.
        limit_bytes: of the stretch; a single longer line makes a longer one. 1: one line.

    Raises:
        OSError: the file is not safe to read.
    """
    content = _complete_lines(folder, offset, limit_bytes)
    if not content:
        return None
    events: list[dict[str, object]] = []
    blocks = _Blocks()
    for end_offset, line in _lines(content, offset):
        if line.get("type") in _NUMBERS:
            blocks.add(line)
        else:
            events.append({**line, "end_offset": end_offset})
    return Batch(
        fence=fence,
        attempt=attempt,
        file=EVENTS_NAME,
        offset=offset,
        next_offset=offset + len(content),
        events=events,
        metrics=blocks.finish(),
    )


def saved_checkpoints(folder: Path, offset: int = 0) -> tuple[list[SavedCheckpoint], int]:
    """Checkpoints that complete lines from ``offset`` on tell of, and where reading ended."""
    found = []
    while content := _complete_lines(folder, offset):
        if b"checkpoint_saved" in content:
            for end_offset, line in _lines(content, offset):
                if line.get("type") == "checkpoint_saved" and (saved := _checkpoint(line)) is not None:
                    found.append(SavedCheckpoint(saved, end_offset))
        offset += len(content)
    return found, offset


def read_log(folder: Path, name: str, offset: int) -> bytes:
    """The next stretch of a log, from ``offset``; empty when there is none.

    Raises:
        OSError: the file is not safe to read.
    """
    with opened_file(folder, OUTPUT_FOLDER, LOGS_FOLDER, name) as descriptor:
        return read_stretch(descriptor, offset, STRETCH_BYTES)


def log_names(folder: Path) -> list[str]:
    """Logs that are there, by name."""
    try:
        with opened_folder(folder, OUTPUT_FOLDER, LOGS_FOLDER) as logs:
            names = os.listdir(logs)  # noqa: PTH208 - of a descriptor, which no path replaces
    except OSError:
        return []
    return sorted(name for name in names if name.endswith(".log") and is_plain_name(name))


class FirstStepWatch:
    """Looks out for the first ``step`` line, reading each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offset = 0
        self.has_step = False

    def has_grown(self) -> bool:
        """Whether complete lines came since the last look."""
        try:
            content = _complete_lines(self._folder, self._offset)
        except OSError:
            return False
        self.has_step = self.has_step or any(
            line.get("type") == "step" for _, line in _lines(content, self._offset)
        )
        self._offset += len(content)
        return bool(content)


class _Blocks:
    """Gathers numbers into columns; a line with other series than the one before it begins a new block."""

    def __init__(self) -> None:
        self._blocks: list[MetricBlock] = []
        self._steps: list[int] = []
        self._series: dict[str, list[float]] = {}

    def add(self, line: dict[str, Any]) -> None:
        step, values = line.get("step"), line.get("values")
        if (
            not isinstance(step, int)
            or not isinstance(values, dict)
            or not all(map(_is_number, values.values()))
        ):
            log.warning("dropped a line of numbers that has none: %.200s", line)
            return
        if values.keys() != self._series.keys():
            self._close()
            self._series = {name: [] for name in values}
        self._steps.append(step)
        for name, value in values.items():
            self._series[name].append(float(value))

    def finish(self) -> list[MetricBlock]:
        self._close()
        return self._blocks

    def _close(self) -> None:
        if self._steps:
            self._blocks.append(MetricBlock(steps=self._steps, series=self._series))
        self._steps, self._series = [], {}


def _complete_lines(folder: Path, offset: int, limit_bytes: int = STRETCH_BYTES) -> bytes:
    """From ``offset`` up to the end of a line: as many as fit a stretch, or the one that does not."""
    try:
        with opened_file(folder, OUTPUT_FOLDER, EVENTS_NAME) as descriptor:
            content = read_stretch(descriptor, offset, limit_bytes)
            if b"\n" not in content and len(content) == limit_bytes:
                content = _first_line(descriptor, offset)
    except FileNotFoundError:
        return b""
    if b"\n" not in content and len(content) == _LONGEST_LINE_BYTES:
        return content  # no line of ours is so long: passed over piece by piece
    return content[: content.rfind(b"\n") + 1]


def _first_line(descriptor: int, offset: int) -> bytes:
    content = read_stretch(descriptor, offset, _LONGEST_LINE_BYTES)
    return content[: content.find(b"\n") + 1] or content


def _lines(content: bytes, offset: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line that holds an object, with the offset of its end in the file."""
    for raw in content.splitlines(keepends=True):
        offset += len(raw)
        try:
            line = json.loads(raw)
        except ValueError:
            line = None
        if isinstance(line, dict):
            yield offset, line
        else:
            log.warning("dropped an unreadable line that ends at %d", offset)


def _checkpoint(line: dict[str, Any]) -> CheckpointSaved | None:
    try:
        return CheckpointSaved.model_validate(line)
    except ValidationError as error:
        log.warning("dropped an unreadable checkpoint line: %s", error)
        return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
