"""A look at the first rows of files, in a process of its own: what it opens may be hostile.

    python -m trainwright_backend.datasets.look < job.json

It limits its own memory and CPU time, and answers one line of JSON a file, so that what was seen before a file that kills it is not
lost. Who starts it limits its time. It is given no database and no secret.
"""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from trainwright.contracts.api.uploads import Column
from trainwright.contracts.base import Envelope
from trainwright.contracts.recipe import Compression, FileFormat, ReadSpec
from trainwright.prepare.documents import Document, Rejected, Source, UnusableDataError
from trainwright.prepare.reading import columns_of, read_rows, resolve_field
from trainwright.prepare.sniff import sniff

DOCUMENTS = 20
CHARACTERS = 2**20
"""Text of documents after which the look at a file ends."""

CPU_SECONDS = 60
"""More than anybody waits for: what outlives the one who asked ends by it, and so does each process that it starts."""

OUT_OF_MEMORY = 4
"""Exit status when memory ran out in the middle of something else; 1 is any error that nobody caught."""

SHOWN_CHARACTERS = 2_000
SHOWN_COLUMNS = 1_000
"""What is answered is held by the process that asked: twenty files of wide tables are a few megabytes."""


class LookedAt(Envelope):
    """A file to look at."""

    name: str
    path: str


class Look(Envelope):
    """What to look at, and how."""

    files: list[LookedAt]
    read: ReadSpec
    memory_bytes: int
    """That the process may have at most."""


class Seen(Envelope):
    """What one file holds."""

    format: FileFormat | None = None
    compression: Compression = Compression.NONE
    columns: list[Column] = []
    field: str | None = None
    documents: list[str] = []
    rejected: list[Rejected] = []
    problem: str | None = None


def look_at(file: LookedAt, asked: Look) -> Seen:
    """The first rows of one file."""
    seen = Seen()
    try:
        for more in _looks(Source(file.name, Path(file.path)), asked.read):
            seen = more
    except UnusableDataError as error:
        return seen.model_copy(update={"problem": str(error)})
    except MemoryError:
        return seen.model_copy(update={"problem": too_large(file.name, asked.memory_bytes)})
    return seen


def _looks(source: Source, read: ReadSpec) -> Iterator[Seen]:
    """What is known of a file, more from look to look: what was seen counts, whatever comes after it."""
    sniffed = sniff(source)
    seen = Seen(format=sniffed.format, compression=sniffed.compression)
    yield seen
    field = None
    if sniffed.format is not FileFormat.TEXT:
        columns = columns_of(source, sniffed)
        yield (seen := seen.model_copy(update={"columns": columns[:SHOWN_COLUMNS]}))
        field = resolve_field(columns, read.field)
    seen = seen.model_copy(update={"field": field})
    documents: list[str] = []
    rejected: list[Rejected] = []
    for row in first_rows(read_rows(source, sniffed, read.model_copy(update={"field": field}))):
        if isinstance(row, Document):
            documents.append(row.text[:SHOWN_CHARACTERS])
        else:
            rejected.append(row)
        yield seen.model_copy(update={"documents": documents, "rejected": rejected})


def too_large(name: str, memory_bytes: int) -> str:
    """What is said of a file whose first rows do not fit into the memory of a look."""
    return (
        f"Looking at {name} needs more than {memory_bytes // 2**20:,} MiB of memory. Write it with smaller rows or row "
        "groups, or as JSON Lines."
    )


def first_rows(rows: Iterator[Document | Rejected]) -> Iterator[Document | Rejected]:
    """As many rows as are shown."""
    characters = 0
    for number, row in enumerate(rows, start=1):
        yield row
        characters += len(row.text) if isinstance(row, Document) else 0
        if number >= DOCUMENTS or characters >= CHARACTERS:
            return


def main() -> None:
    asked = Look.model_validate_json(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_AS, (asked.memory_bytes, asked.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for file in asked.files:
        sys.stdout.buffer.write(look_at(file, asked).model_dump_json().encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
