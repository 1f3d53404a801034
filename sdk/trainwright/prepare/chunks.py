"""Chunks: the documents of a stored file, in Parquet files of bounded size that jobs process independently.

For each document a chunk contains its line, text, text hash and text statistics. Its documents depend only on the bytes of the
file and the position where the chunk starts, so continuing after any chunk gives the same chunks as reading from the beginning.
The same release of pyarrow always writes the same bytes (Parquet files name their writer).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trainwright.contracts.base import Envelope
from trainwright.contracts.curation import ReadSpec
from trainwright.contracts.file_types import FileType
from trainwright.durable_files import SHARED, write_durably
from trainwright.prepare.documents import HASH_BYTES, Document, Rejected, Source
from trainwright.prepare.file_reader import positioned_rows
from trainwright.prepare.rows import Position, Row
from trainwright.prepare.text_stats import TextStats, compute_text_stats

CHUNK_BYTES = 16 * 2**20
"""Most UTF-8 bytes in the texts of a chunk."""
CHUNK_DOCUMENTS = 50_000
CHUNK_ROWS = 1_000_000
CHUNK_READ_BYTES = 2**30
"""Many rejected rows also end a chunk, so that they are not read again after an interruption."""
CHUNK_BLANK_ROWS = 100
"""Much white space also ends a chunk: this many times `BLANK_LINES` blank lines, or blocks of white space in plain
text."""
REJECTED_LISTED = 1_000
"""Rejected rows that a chunk lists. All of them are counted."""
READ_AT_ONCE = 256
WRITER = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "write_statistics": False,
    "version": "2.6",
    "data_page_version": "1.0",
    "data_page_size": 2**20,
    "write_batch_size": 64,
}
"""Fixed, so that the bytes are reproducible."""
SCHEMA = pa.schema(
    [
        pa.field("line", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("hash", pa.binary(HASH_BYTES), nullable=False),
        pa.field("characters", pa.int32(), nullable=False),
        pa.field("letter_fraction", pa.float32(), nullable=False),
        pa.field("repeated_line_fraction", pa.float32(), nullable=False),
        pa.field("mean_word_characters", pa.float32(), nullable=False),
    ]
)


class ChunkInfo(Envelope):
    """Description of a chunk."""

    number: int
    """Number in the file name. If ``documents`` is 0 there is no file, and the next chunk has this number."""

    documents: int
    characters: int
    bytes: int
    """Size of the chunk's file."""

    digest: str
    """SHA-256 of the chunk's file, in hex."""

    rejected: list[Rejected] = []
    """The first ones."""

    rejected_count: int = 0
    next_position: Position | None
    """Where the next chunk starts; None at the end of the file."""

    read_bytes: int
    """Bytes of the stored file that have been read, for progress."""


def chunk_name(number: int) -> str:
    return f"piece-{number:05d}.parquet"  # its name in older stores too


def write_chunks(
    source: Source,
    sniffed: FileType,
    read: ReadSpec,
    folder: Path,
    start: Position | None = None,
    first_number: int = 0,
) -> Iterator[ChunkInfo]:
    """Write the chunks from ``start`` on to ``folder``, and yield each one once it is stored durably.

    Raises:
        UnusableDataError: the file is broken, or has no such field. Earlier chunks have been yielded.
    """
    draft, number = _Draft(first_offset=start.offset if start else 0), first_number
    for row in positioned_rows(source, sniffed, read, start):
        content = row.found.text.encode() if isinstance(row.found, Document) else b""
        if draft.ends_before(len(content), row):
            info = _write(draft, folder, number, draft.position)
            yield info
            number += info.documents > 0
            draft = _Draft(first_offset=info.next_position.offset if info.next_position else 0)
        draft.add(row, content)
    yield _write(draft, folder, number, None, source.path.stat().st_size)


def read_chunk(path: Path, mask: bytes | None = None) -> Iterator[Document]:
    """The documents of a chunk in order: all, or those whose byte in ``mask`` is 0."""
    first = 0
    with pq.ParquetFile(path) as file:
        assert mask is None or len(mask) == file.metadata.num_rows, (
            f"{path}: the mask belongs to another chunk"
        )
        for batch in file.iter_batches(READ_AT_ONCE, columns=["line", "text"], use_threads=False):
            chosen = batch if mask is None else batch.take(_kept(mask[first : first + len(batch)]))
            first += len(batch)
            columns = (chosen.column("text").to_pylist(), chosen.column("line").to_pylist())
            for text, line in zip(*columns, strict=True):
                yield Document(text, line)


def read_text_stats(path: Path) -> TextStats:
    """Hashes and text statistics of a chunk, without reading the texts."""
    table = pq.read_table(path, columns=SCHEMA.names[2:], use_threads=False, partitioning=None)
    columns = {name: table.column(name).combine_chunks() for name in SCHEMA.names[2:]}
    return TextStats(
        hash=_hashes(columns.pop("hash")), **{name: column.to_numpy() for name, column in columns.items()}
    )


def read_hashes(path: Path) -> NDArray[np.uint8]:
    """Hashes only, shape (n, 16)."""
    table = pq.read_table(path, columns=["hash"], use_threads=False, partitioning=None)
    return _hashes(table.column("hash").combine_chunks())


def count_documents(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def _hashes(column: pa.FixedSizeBinaryArray) -> NDArray[np.uint8]:
    content = column.buffers()[1]
    if content is None:
        return np.zeros((0, HASH_BYTES), np.uint8)
    whole = np.frombuffer(content, np.uint8)[column.offset * HASH_BYTES :]
    return whole[: len(column) * HASH_BYTES].reshape(-1, HASH_BYTES)


def _kept(mask: bytes) -> NDArray[np.int64]:
    return np.flatnonzero(np.frombuffer(mask, np.uint8) == 0)


@dataclass
class _Draft:
    """A chunk that is being filled."""

    first_offset: int = 0
    documents: list[Document] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    """Their UTF-8."""

    text_bytes: int = 0
    rejected: list[Rejected] = field(default_factory=list)
    rejected_count: int = 0
    blank_rows: int = 0
    last: Row | None = None

    @property
    def position(self) -> Position:
        assert self.last is not None, "a chunk that ends has a row"
        return self.last.position

    def ends_before(self, size: int, row: Row) -> bool:
        """Whether the chunk must end before ``row``, whose text has ``size`` bytes."""
        if self.last is None:
            return False
        return (
            (bool(self.documents) and self.text_bytes + size > CHUNK_BYTES)
            or len(self.documents) >= CHUNK_DOCUMENTS
            or len(self.documents) + self.rejected_count >= CHUNK_ROWS
            or self.blank_rows >= CHUNK_BLANK_ROWS
            or row.offset - self.first_offset > CHUNK_READ_BYTES
        )

    def add(self, row: Row, content: bytes) -> None:
        self.last = row
        if isinstance(row.found, Document):
            self.documents.append(row.found)
            self.contents.append(content)
            self.text_bytes += len(content)
            return
        if row.found is None:
            self.blank_rows += 1
            return
        self.rejected_count += 1
        if len(self.rejected) < REJECTED_LISTED:
            self.rejected.append(row.found)


def _write(
    draft: _Draft, folder: Path, number: int, position: Position | None, read_bytes: int | None = None
) -> ChunkInfo:
    content, characters = b"", 0
    if draft.documents:
        table = _table(draft.documents, draft.contents)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=CHUNK_DOCUMENTS, **WRITER)
        content = sink.getvalue().to_pybytes()
        characters = sum(len(document.text) for document in draft.documents)
        write_durably(folder / chunk_name(number), content, SHARED)
    return ChunkInfo(
        number=number,
        documents=len(draft.documents),
        characters=characters,
        bytes=len(content),
        digest=hashlib.sha256(content).hexdigest(),
        rejected=draft.rejected,
        rejected_count=draft.rejected_count,
        next_position=position,
        read_bytes=draft.last.stored_bytes if read_bytes is None and draft.last else read_bytes or 0,
    )


def _table(documents: Sequence[Document], contents: Sequence[bytes]) -> pa.Table:
    stats = compute_text_stats([document.text for document in documents], contents)
    ends = np.cumsum([0, *map(len, contents)], dtype=np.int32)
    texts = pa.StringArray.from_buffers(len(contents), pa.py_buffer(ends), pa.py_buffer(b"".join(contents)))
    hashes = pa.FixedSizeBinaryArray.from_buffers(
        SCHEMA.field("hash").type, len(contents), [None, pa.py_buffer(stats.hash)]
    )
    columns = [
        pa.array([document.line for document in documents], pa.int64()),
        texts,
        hashes,
        *(pa.array(getattr(stats, name)) for name in SCHEMA.names[3:]),
    ]
    return pa.table(columns, schema=SCHEMA)
