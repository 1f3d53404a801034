"""Sampling the first rows of files, in a separate process, because the files may be hostile.

    python -m trainwright_backend.datasets.sample_rows < request.json

The process limits its own memory and CPU time. It writes one line of JSON per file, so a file that kills it does not
lose the results before it. The parent limits its run time, and passes it neither a database nor a secret.
"""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from trainwright.contracts.api.uploads import Column
from trainwright.contracts.base import Envelope
from trainwright.contracts.curation import Compression, FileFormat, ReadSpec
from trainwright.prepare.documents import Document, Rejected, Source, UnusableDataError
from trainwright.prepare.file_reader import columns_of, read_rows, resolve_field
from trainwright.prepare.sniff import sniff

MAX_DOCUMENTS = 20
MAX_CHARACTERS = 2**20
"""Characters of documents after which sampling a file stops."""

CPU_SECONDS = 60
"""Longer than any parent waits. It ends a process that outlives its parent, and each process that it started."""

OUT_OF_MEMORY = 4
"""Exit status when memory ran out outside of a file; 1 is any other error."""

SHOWN_CHARACTERS = 2_000
SHOWN_COLUMNS = 1_000
"""The parent keeps the results in memory: for twenty files with wide tables they are a few megabytes."""


class FileToSample(Envelope):
    """A file to sample."""

    name: str
    path: str


class SampleRequest(Envelope):
    """What the process reads from its standard input."""

    files: list[FileToSample]
    read: ReadSpec
    memory_bytes: int
    """Limit of the process's memory."""


class FileSample(Envelope):
    """The first rows of one file, and what is known of its format."""

    format: FileFormat | None = None
    compression: Compression = Compression.NONE
    columns: list[Column] = []
    field: str | None = None
    documents: list[str] = []
    rejected: list[Rejected] = []
    problem: str | None = None


def sample_file(file: FileToSample, request: SampleRequest) -> FileSample:
    """Sample one file. An error keeps what was found before it."""
    sample = FileSample()
    try:
        for better in _samples(Source(file.name, Path(file.path)), request.read):
            sample = better
    except UnusableDataError as error:
        return sample.model_copy(update={"problem": str(error)})
    except MemoryError:
        return sample.model_copy(update={"problem": too_large(file.name, request.memory_bytes)})
    return sample


def _samples(source: Source, read: ReadSpec) -> Iterator[FileSample]:
    """Samples that grow from one to the next."""
    sniffed = sniff(source)
    sample = FileSample(format=sniffed.format, compression=sniffed.compression)
    yield sample
    field = None
    if sniffed.format is not FileFormat.TEXT:
        columns = columns_of(source, sniffed)
        yield (sample := sample.model_copy(update={"columns": columns[:SHOWN_COLUMNS]}))
        field = resolve_field(columns, read.field)
    sample = sample.model_copy(update={"field": field})
    documents: list[str] = []
    rejected: list[Rejected] = []
    for row in first_rows(read_rows(source, sniffed, read.model_copy(update={"field": field}))):
        if isinstance(row, Document):
            documents.append(row.text[:SHOWN_CHARACTERS])
        else:
            rejected.append(row)
        yield sample.model_copy(update={"documents": documents, "rejected": rejected})


def too_large(name: str, memory_bytes: int) -> str:
    """The error for a file whose first rows do not fit into the memory limit."""
    return (
        f"Reading the first rows of {name} needs more than {memory_bytes // 2**20:,} MiB of memory. Write the file with "
        "smaller rows or row groups, or as JSON Lines."
    )


def first_rows(rows: Iterator[Document | Rejected]) -> Iterator[Document | Rejected]:
    """The first rows, up to `MAX_DOCUMENTS` rows or `MAX_CHARACTERS` characters."""
    characters = 0
    for number, row in enumerate(rows, start=1):
        yield row
        characters += len(row.text) if isinstance(row, Document) else 0
        if number >= MAX_DOCUMENTS or characters >= MAX_CHARACTERS:
            return


def main() -> None:
    request = SampleRequest.model_validate_json(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_AS, (request.memory_bytes, request.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    for file in request.files:
        sys.stdout.buffer.write(sample_file(file, request).model_dump_json().encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
