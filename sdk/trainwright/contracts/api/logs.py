"""Logs of a run: by bytes, by lines, by search."""

from __future__ import annotations

from datetime import datetime

from trainwright.contracts.base import Envelope


class LogFile(Envelope):
    attempt: int
    file: str
    bytes: int
    node: str | None = None
    """The node of the rank that wrote it; empty if no rank wrote it, or its node was never recorded."""


class LogLine(Envelope):
    number: int
    """From 1."""

    text: str
    """Truncated after 10,000 characters."""

    time: datetime | None = None
    """When its end arrived at the server, usually within a second or two; later if the node had no connection.
    Empty if it is not known."""


class LogLines(Envelope):
    """Consecutive lines of a log."""

    lines: list[LogLine]
    total: int
    """Number of lines stored so far. The last one may still grow."""


class LogMatches(Envelope):
    """Lines that contain the search term, in order."""

    lines: list[LogLine]
    searched_to: int
    """The last line that was searched: pass it as `after_line` to continue."""

    end: bool
    """The whole log was searched."""


class LogText(Envelope):
    text: str
    offset: int
    next_offset: int
    end: bool
    """Nothing is stored beyond `next_offset` yet."""
