"""Reads an attempt's growing files in chunks, each identified by its byte offset.

``events.jsonl`` is read in complete lines (an incomplete last line waits, or is dropped when the attempt has ended).
Metrics become columns, which parse twenty times faster than objects; adjacent lines with the same series form one
block. Every other line stays an event and gets its end offset, by which a checkpoint names the events it needs. Logs
are raw bytes.

This module has no state: the file contains the data, and the API stores the offset. So sending a chunk again is
harmless, and a new agent continues at the API's offset.
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
from trainwright_agent.untrusted_files import opened_file, opened_folder, read_chunk

log = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 2**10
"""Size of a chunk; a longer line makes a longer chunk."""
_MAX_LINE_BYTES = 16 * 2**20
_METRIC_TYPES = ("step", "validation")


@dataclass(frozen=True)
class SavedCheckpoint:
    """A ``checkpoint_saved`` line and its end offset."""

    line: CheckpointSaved
    end_offset: int


def read_batch(
    folder: Path, attempt: int, fence: int, offset: int, limit_bytes: int = CHUNK_BYTES
) -> Batch | None:
    """The next chunk of complete event lines from ``offset``, or None.

    Args:
        folder: the attempt's folder.
        attempt: the attempt's number.
        fence: the attempt's fence.
        offset: start of the chunk.
        limit_bytes: size of the chunk; a longer line makes a longer chunk. 1 reads one line.

    Raises:
        OSError: the file is not safe to read.
    """
    content = _complete_lines(folder, offset, limit_bytes)
    if not content:
        return None
    events: list[dict[str, object]] = []
    blocks = _MetricBlocks()
    for end_offset, line in _lines(content, offset):
        if line.get("type") in _METRIC_TYPES:
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
    """Checkpoints that complete lines from ``offset`` announce, and the offset where reading ended."""
    found = []
    while content := _complete_lines(folder, offset):
        if b"checkpoint_saved" in content:
            for end_offset, line in _lines(content, offset):
                if line.get("type") == "checkpoint_saved" and (saved := _checkpoint(line)) is not None:
                    found.append(SavedCheckpoint(saved, end_offset))
        offset += len(content)
    return found, offset


def read_log(folder: Path, name: str, offset: int) -> bytes:
    """The next chunk of a log from ``offset``; empty at its end.

    Raises:
        OSError: the file is not safe to read.
    """
    with opened_file(folder, OUTPUT_FOLDER, LOGS_FOLDER, name) as descriptor:
        return read_chunk(descriptor, offset, CHUNK_BYTES)


def log_names(folder: Path) -> list[str]:
    """Names of the attempt's logs."""
    try:
        with opened_folder(folder, OUTPUT_FOLDER, LOGS_FOLDER) as logs:
            names = os.listdir(logs)  # noqa: PTH208 - of a descriptor, which no path replaces
    except OSError:
        return []
    return sorted(name for name in names if name.endswith(".log") and is_plain_name(name))


class FirstStepWatch:
    """Watches for the first ``step`` line, reading each line once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offset = 0
        self.has_step = False

    def has_grown(self) -> bool:
        """Whether complete lines were added since the last call."""
        try:
            content = _complete_lines(self._folder, self._offset)
        except OSError:
            return False
        self.has_step = self.has_step or any(
            line.get("type") == "step" for _, line in _lines(content, self._offset)
        )
        self._offset += len(content)
        return bool(content)


class _MetricBlocks:
    """Collects metrics into columns. A line with other series than the previous one starts a new block."""

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
            log.warning("dropped a malformed line of metrics: %.200s", line)
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


def _complete_lines(folder: Path, offset: int, limit_bytes: int = CHUNK_BYTES) -> bytes:
    """Complete lines from ``offset``: as many as fit into a chunk, or one longer line."""
    try:
        with opened_file(folder, OUTPUT_FOLDER, EVENTS_NAME) as descriptor:
            content = read_chunk(descriptor, offset, limit_bytes)
            if b"\n" not in content and len(content) == limit_bytes:
                content = _first_line(descriptor, offset)
    except FileNotFoundError:
        return b""
    if b"\n" not in content and len(content) == _MAX_LINE_BYTES:
        return content  # no valid line is this long: skipped chunk by chunk
    return content[: content.rfind(b"\n") + 1]


def _first_line(descriptor: int, offset: int) -> bytes:
    content = read_chunk(descriptor, offset, _MAX_LINE_BYTES)
    return content[: content.find(b"\n") + 1] or content


def _lines(content: bytes, offset: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each line that is a JSON object, with the offset of its end in the file."""
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
