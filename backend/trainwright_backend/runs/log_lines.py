"""Logs by line: a range of lines by number, and a search for lines that contain some text.

Each stored chunk knows how many lines end before it, so a line is found without reading the chunks before. A
line is the text between two line feeds; if a progress bar used carriage returns, it is the text after the last
one. Every request does a bounded amount of work, on hostile logs too: of a line longer than a mebibyte only the
two ends are read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, select

from trainwright.contracts.api.logs import LogLine, LogLines, LogMatches
from trainwright.contracts.job_spec import EVENTS_NAME
from trainwright_backend.core.db import Read
from trainwright_backend.core.errors import Invalid
from trainwright_backend.runs.attempt_files import no_such_log
from trainwright_backend.runs.tables import AttemptFile, LogChunk, Run

MAX_LINE_LENGTH = 10_000
"""Characters; the rest of a line is not shown."""

MAX_LINE_BYTES = 2**20
READ_BYTES = 16 * 2**20
"""Bytes after which a page of lines ends early. It has at least one line."""

SEARCHED_BYTES = 96 * 2**20
"""Per request."""

AT_ONCE_BYTES = 4 * 2**20
FEWEST_ROWS, MAX_ROWS = 16, 1_000
"""Chunks in memory at a time."""

SEAM = b"\0"
"""Joins the two ends of a line that is too long; no search can match it."""


@dataclass(frozen=True)
class _ChunkStart:
    offset: int
    lines_before: int


@dataclass(frozen=True)
class _Block:
    """Complete lines, in bytes; the last block may end with a line that has no line feed."""

    lines_before: int
    content: bytes
    received: datetime | None
    """When the ends of its lines arrived."""
    read_bytes: int
    """Since the start of the request."""


def find_log(session: Read, run: Run, attempt: int, file: str) -> AttemptFile:
    """The row of a log.

    Raises:
        NotFound: the run has no such log.
    """
    row = session.get(AttemptFile, (run.id, attempt, file))
    if row is None or file == EVENTS_NAME:
        raise no_such_log(session, run, attempt, file)
    return row


def read_lines(session: Read, run: Run, attempt: int, file: str, first: int, limit: int) -> LogLines:
    """At most ``limit`` lines from number ``first`` on; numbers start at 1."""
    log = find_log(session, run, attempt, file)
    lines: list[LogLine] = []
    for block in _blocks(session, log, first - 1):
        content = block.content.removesuffix(b"\n").split(b"\n")
        skipped = max(first - 1 - block.lines_before, 0)
        chosen = content[skipped : skipped + limit - len(lines)]
        begin = block.lines_before + skipped + 1
        lines += [
            LogLine(number=begin + n, text=_shown(line), time=block.received) for n, line in enumerate(chosen)
        ]
        if len(lines) == limit or (lines and block.read_bytes > READ_BYTES):
            break
    return LogLines(lines=lines, total=_total(log))


def search_log(
    session: Read, run: Run, attempt: int, file: str, words: str, after_line: int, limit: int
) -> LogMatches:
    """At most ``limit`` lines after ``after_line`` that contain ``words``, ignoring case."""
    if not words.strip("\r\n"):
        raise Invalid.at("q", "Enter a text to search for.", words[:200])
    log = find_log(session, run, attempt, file)
    wanted = words.casefold()
    found: list[LogLine] = []
    searched_to = min(after_line, _total(log))
    for block in _blocks(session, log, after_line):
        for match in _matches(block, wanted, after_line):
            found.append(match)
            if len(found) == limit:
                return LogMatches(lines=found, searched_to=match.number, end=match.number == _total(log))
        searched_to = block.lines_before + _lines_in(block.content)
        if block.read_bytes > SEARCHED_BYTES:
            break
    return LogMatches(lines=found, searched_to=searched_to, end=searched_to >= _total(log))


def _total(log: AttemptFile) -> int:
    return log.line_ends + log.has_open_line


def _lines_in(content: bytes) -> int:
    return content.count(b"\n") + (not content.endswith(b"\n"))


def _matches(block: _Block, wanted: str, after_line: int) -> Iterator[LogLine]:
    """Search all lines of a block at once, since most blocks have no match. Text that a progress bar overwrote
    is ignored."""
    folded = block.content.decode("utf-8", "replace").casefold()
    at, counted, line = folded.find(wanted), 0, 0
    lines = block.content.split(b"\n") if at >= 0 else []
    while at >= 0:
        line += folded.count("\n", counted, at)
        counted = at
        text = _whole(lines[line])
        if block.lines_before + line >= after_line and wanted in text.casefold():
            number = block.lines_before + line + 1
            yield LogLine(number=number, text=text[:MAX_LINE_LENGTH], time=block.received)
        end = folded.find("\n", at)
        at = folded.find(wanted, end) if end >= 0 else -1


def _shown(line: bytes) -> str:
    return _whole(line)[:MAX_LINE_LENGTH]


def _whole(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")


def _blocks(session: Read, log: AttemptFile, lines_before: int) -> Iterator[_Block]:
    """The log after its first ``lines_before`` lines, or from a little earlier, split between lines."""
    begin = _ChunkStart(0, 0) if lines_before == 0 else _chunk_with_end_of(session, log, lines_before)
    if begin is None:
        return
    offset: int | None = begin.offset
    line = begin.lines_before
    carry, received, read_bytes, skips = b"", None, 0, lines_before > 0
    while offset is not None:
        following = None
        for chunk_offset, chunk, received in _chunks(session, log, offset):
            read_bytes += len(chunk)
            if skips:  # the rest of a line that started in an earlier chunk
                chunk, line, skips = chunk[chunk.index(b"\n") + 1 :], line + 1, False
            whole, end, rest = chunk.rpartition(b"\n")
            if end:
                content = carry + whole + end
                yield _Block(line, content, received, read_bytes)
                line += content.count(b"\n")
                carry = b""
            carry += rest
            if len(carry) > MAX_LINE_BYTES:
                carry = carry[: MAX_LINE_BYTES // 2] + SEAM + carry[-MAX_LINE_BYTES // 2 :]
                following = _near_end_of_line(session, log, line, chunk_offset)
                if following is not None:
                    break
        offset = following
    if carry:
        yield _Block(line, carry, received, read_bytes)


def _chunk_with_end_of(session: Read, log: AttemptFile, number: int) -> _ChunkStart | None:
    """The chunk in which line ``number`` ends; None if it has no end yet."""
    if number > log.line_ends:
        return None
    found = select(LogChunk.offset, LogChunk.lines_before).where(*_of(log), LogChunk.lines_before < number)
    newest_first = found.order_by(LogChunk.lines_before.desc(), LogChunk.offset.desc())
    return _ChunkStart(*session.execute(newest_first.limit(1)).one())


def _near_end_of_line(session: Read, log: AttemptFile, lines_before: int, offset: int) -> int | None:
    """The last chunk but one of a long line, if it is after ``offset``."""
    of_line = select(LogChunk.offset).where(*_of(log), LogChunk.lines_before == lines_before)
    last_two = session.scalars(of_line.order_by(LogChunk.offset.desc()).limit(2)).all()
    return last_two[-1] if len(last_two) == 2 and last_two[-1] > offset else None


def _chunks(session: Read, log: AttemptFile, offset: int) -> Iterator[tuple[int, bytes, datetime | None]]:
    """The stored chunks from ``offset`` on, read a few mebibytes at a time."""
    rows = FEWEST_ROWS
    while True:
        some = select(LogChunk.offset, LogChunk.content, LogChunk.received)
        later = some.where(*_of(log), LogChunk.offset >= offset)
        found = session.execute(later.order_by(LogChunk.offset).limit(rows)).all()
        yield from ((row.offset, row.content, row.received) for row in found)
        if len(found) < rows:
            return
        offset = found[-1].offset + len(found[-1].content)
        size = sum(len(row.content) for row in found) // rows + 1
        rows = min(max(AT_ONCE_BYTES // size, FEWEST_ROWS), MAX_ROWS)


def _of(log: AttemptFile) -> tuple[ColumnElement[bool], ...]:
    return LogChunk.run_id == log.run_id, LogChunk.attempt == log.attempt, LogChunk.file == log.file
