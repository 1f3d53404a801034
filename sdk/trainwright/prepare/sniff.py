"""Detects the type of a stored file, which may be compressed. `contracts.file_types` has the rules."""

from __future__ import annotations

from trainwright.contracts.curation import Compression
from trainwright.contracts.file_types import (
    HEAD_BYTES,
    WORDS,
    FileType,
    FileTypeError,
    compression_of,
    format_of,
    has_line,
    magic_compression,
)
from trainwright.prepare.decompress import PlainStream
from trainwright.prepare.documents import DOCUMENT_BYTES, Source, UnusableDataError


def sniff(source: Source) -> FileType:
    """Detect the type of ``source``.

    Raises:
        UnusableDataError: the type is not supported, the bytes contradict the name, or are broken.
    """
    try:
        return _file_type(source)
    except FileTypeError as error:
        raise UnusableDataError(str(error)) from None


def _file_type(source: Source) -> FileType:
    with source.path.open("rb") as file:
        compression = compression_of(source.name, file.read(HEAD_BYTES))
    with PlainStream(source, compression) as stream:
        head = _head(stream)
    inner = magic_compression(head)
    if compression is not Compression.NONE and inner is not Compression.NONE:
        raise FileTypeError(
            f"{source.name} contains {WORDS[inner]} data within {WORDS[compression]} data. Compress it only once."
        )
    return FileType(format_of(source.name, head), compression)


def _head(stream: PlainStream) -> bytes:
    """The first bytes, with at least the entire first line unless it is longer than a document may be."""
    head = stream.read(HEAD_BYTES)
    while not has_line(head) and len(head) <= DOCUMENT_BYTES:
        more = stream.read(HEAD_BYTES + 3 * len(head))
        if not more:
            break
        head += more
    return head
