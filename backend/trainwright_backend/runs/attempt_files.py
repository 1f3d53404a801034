"""The files of an attempt: how many bytes of each are stored, and the text of its logs.

The agent sends ranges of a file in order, each with its start offset. A range that does not start where the
stored bytes end is refused with the right offset, so repeated, lost and reordered messages do no harm. Ranges
of a log are rows, written in one transaction with the offset, so every API process can read them.

All logs of a run together have a limit. The log that reaches it ends with a line that says so. The server rejects
anything sent after that line, and the agent stops sending that log.
"""

import codecs
from uuid import UUID

from sqlalchemy import func, select

from trainwright.contracts.api.logs import LogFile, LogText
from trainwright.contracts.job_spec import EVENTS_NAME
from trainwright.contracts.listing import listed
from trainwright_backend.core.db import Read, Write, now
from trainwright_backend.core.errors import AppError, Conflict, NotFound
from trainwright_backend.runs.attempts import node_of_log, nodes_by_fence
from trainwright_backend.runs.tables import Attempt, AttemptFile, LogChunk, Run

MAX_LOG_BYTES = 2**30
"""The limit for all logs of all attempts of a run together; each log may end with a notice beyond it."""

LIMIT_NOTICE = (
    f"[Not stored from here: the logs of a run have at most {MAX_LOG_BYTES // 2**20:,} MiB.]\n".encode()
)


def stored_bytes(session: Read, run_id: UUID, attempt: int) -> dict[str, int]:
    """Stored bytes of each file of the attempt."""
    files = select(AttemptFile).where(AttemptFile.run_id == run_id, AttemptFile.attempt == attempt)
    return {file.file: file.bytes for file in session.scalars(files)}


def advance_offset(session: Write, run: Run, file: str, offset: int, next_offset: int) -> AttemptFile:
    """Advance the stored size of a file of the newest attempt from ``offset`` to ``next_offset``.

    Raises:
        Conflict: ``wrong_offset``, with the stored size, if it is not ``offset``.
    """
    row = session.get(AttemptFile, (run.id, run.attempt, file))
    stored = 0 if row is None else row.bytes
    if offset != stored:
        detail = f"{file} is stored up to byte {stored}: send from there."
        raise Conflict("wrong_offset", detail, extensions={"offset": stored})
    if row is None:
        row = AttemptFile(run_id=run.id, attempt=run.attempt, file=file, line_ends=0, has_open_line=False)
        session.add(row)
    row.bytes = next_offset
    return row


def store_log(session: Write, run: Run, file: str, offset: int, content: bytes) -> int:
    """Append ``content`` to a log of the newest attempt, and return the log's new size in bytes.

    Raises:
        Conflict: see `advance_offset`.
        AppError: 413 ``log_limit``: the log ends with the notice that the run's logs are at their limit.
    """
    content = _within_limit(session, run, file, content)
    row = advance_offset(session, run, file, offset, offset + len(content))
    if content:
        session.add(
            LogChunk(
                run_id=run.id,
                attempt=run.attempt,
                file=file,
                offset=offset,
                lines_before=row.line_ends,
                received=now(),
                content=content,
            )
        )
        row.line_ends += content.count(b"\n")
        row.has_open_line = not content.endswith(b"\n")
    return offset + len(content)


def _within_limit(session: Read, run: Run, file: str, content: bytes) -> bytes:
    """What is stored of ``content``: all of it, or what the limit leaves and the notice."""
    logs = (AttemptFile.run_id == run.id, AttemptFile.file != EVENTS_NAME)
    stored = session.scalar(select(func.coalesce(func.sum(AttemptFile.bytes), 0)).where(*logs)) or 0
    room = max(0, MAX_LOG_BYTES - int(stored))  # PostgreSQL adds up to a Decimal
    if len(content) <= room:
        return content
    mine = (LogChunk.run_id == run.id, LogChunk.attempt == run.attempt, LogChunk.file == file)
    newest = select(LogChunk.content).where(*mine).order_by(LogChunk.offset.desc()).limit(1)
    last = session.scalars(newest).first() or b""
    if last.endswith(LIMIT_NOTICE):
        detail = f"The logs of this run are at their limit of {MAX_LOG_BYTES} bytes. Stop sending {file}."
        raise AppError("log_limit", 413, detail)
    kept = content[:room]
    line_is_open = not (kept or last or b"\n").endswith(b"\n")
    return kept + (b"\n" if line_is_open else b"") + LIMIT_NOTICE


def list_logs(session: Read, run: Run) -> list[LogFile]:
    """All logs of the run, oldest attempt first."""
    files = (
        select(AttemptFile)
        .where(AttemptFile.run_id == run.id, AttemptFile.file != EVENTS_NAME)
        .order_by(AttemptFile.attempt, AttemptFile.file)
    )
    attempts = session.execute(select(Attempt.number, Attempt.fence).where(Attempt.run_id == run.id))
    fences = {row.number: row.fence for row in attempts}
    nodes, slots = nodes_by_fence(session, [run.id]), run.slots // run.nodes
    return [
        LogFile(
            attempt=file.attempt,
            file=file.file,
            bytes=file.bytes,
            node=node_of_log(nodes.get((run.id, fences.get(file.attempt, 0)), []), slots, file.file),
        )
        for file in session.scalars(files)
    ]


def no_such_log(session: Read, run: Run, attempt: int, file: str) -> NotFound:
    """The refusal of a log that does not exist, with the names of those that do."""
    names = sorted(
        stored_bytes(session, run.id, attempt).keys() - {EVENTS_NAME}, key=lambda name: (len(name), name)
    )
    none = "It has none yet." if attempt == run.attempt else "It has none."
    others = f"It has {listed(names, most=8)}." if names else none
    return NotFound(f"Attempt {attempt} of this run has no log named {file[:80]!r}. {others}")


def read_log(session: Read, run: Run, attempt: int, file: str, offset: int, limit: int) -> LogText:
    """At most ``limit`` bytes of a log from ``offset``, as text that never ends within a character."""
    row = session.get(AttemptFile, (run.id, attempt, file))
    if row is None or file == EVENTS_NAME:
        raise no_such_log(session, run, attempt, file)
    content = _content(session, run.id, attempt, file, offset, min(limit, max(row.bytes - offset, 0)))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(content)
    torn_bytes = len(decoder.getstate()[0])
    next_offset = offset + len(content) - torn_bytes
    return LogText(text=text, offset=offset, next_offset=next_offset, end=offset + len(content) >= row.bytes)


def _content(session: Read, run_id: UUID, attempt: int, file: str, offset: int, count: int) -> bytes:
    log = (LogChunk.run_id == run_id, LogChunk.attempt == attempt, LogChunk.file == file)
    first = (
        select(LogChunk.offset)
        .where(*log, LogChunk.offset <= offset)
        .order_by(LogChunk.offset.desc())
        .limit(1)
        .scalar_subquery()
    )
    chunks = (
        select(LogChunk.offset, LogChunk.content)
        .where(*log, LogChunk.offset >= first, LogChunk.offset < offset + count)
        .order_by(LogChunk.offset)
    )
    content = bytearray()
    for start, piece in session.execute(chunks):
        content += piece[max(offset - start, 0) :]
    return bytes(content[:count])
