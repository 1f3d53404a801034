"""Detects the type of a file from its first bytes; its name may refine it and must not contradict it.

gzip, Zstandard and Parquet have magic numbers. The rest is text: JSON Lines if its first lines are JSON objects, CSV if the
name says so (CSV has no magic number), otherwise plain text. Known other types, such as archives and images, are rejected
with advice.

The client checks files with it before it uploads them, the server before it creates a dataset from them. Neither opens
compressed files; reading does (`prepare.sniff`).
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from trainwright.contracts.curation import Compression, FileFormat

HEAD_BYTES = 64 * 2**10
GZIP_MAGIC = b"\x1f\x8b"
ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE_MAGIC = tuple(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))
"""Starts of Zstandard frames that contain no data."""
PARQUET_MAGIC = b"PAR1"
ENCRYPTED_PARQUET_MAGIC = b"PARE"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

COMPRESSED_NAMES = {
    ".gz": Compression.GZIP,
    ".gzip": Compression.GZIP,
    ".zst": Compression.ZSTANDARD,
    ".zstd": Compression.ZSTANDARD,
}
JSON_NAMES = (".jsonl", ".ndjson", ".json")
TABLE_NAMES = (".csv", ".tsv")
WORDS = {Compression.GZIP: "gzip", Compression.ZSTANDARD: "Zstandard"}

UNPACK = "Unpack it and upload the files inside."
EXPORT = "Export its text as .txt, .jsonl, .csv or .parquet and upload that."
FOREIGN = [
    (b"PK\x03\x04", "a ZIP archive or an office document", UNPACK),
    (b"BZh", "bzip2 data", "Unpack it, or compress it with gzip or Zstandard."),
    (b"\xfd7zXZ\x00", "xz data", "Unpack it, or compress it with gzip or Zstandard."),
    (b"\x04\x22\x4d\x18", "LZ4 data", "Unpack it, or compress it with gzip or Zstandard."),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"%PDF-", "a PDF document", EXPORT),
    (b"\x89PNG", "a PNG image", EXPORT),
    (b"\xff\xd8\xff", "a JPEG image", EXPORT),
    (b"SQLite format 3\x00", "an SQLite database", EXPORT),
    (b"ARROW1", "an Arrow file", EXPORT),
    (b"Obj\x01", "an Avro file", EXPORT),
    (b"\xd0\xcf\x11\xe0", "an office document", EXPORT),
    (ENCRYPTED_PARQUET_MAGIC, "an encrypted Parquet file", "Save it without encryption."),
]
WIDE = [
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
]

CONTROL = bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})
MAX_CONTROL = 0.02
"""Text in a single-byte encoding has hardly any control characters; of random bytes every tenth is one."""


class FileTypeError(ValueError):
    """The type of a file is not supported, or its bytes contradict its name."""


@dataclass(frozen=True)
class FileType:
    """Format and compression of a stored file."""

    format: FileFormat
    compression: Compression


def check_first_bytes(name: str, first: bytes) -> None:
    """Check the type of a file, as far as its first `HEAD_BYTES` bytes determine it.

    Raises:
        FileTypeError: reading the file would fail.
    """
    if compression_of(name, first) is not Compression.NONE:
        return
    if len(first) < HEAD_BYTES or has_line(first) or first.startswith(PARQUET_MAGIC):
        format_of(name, first)
    else:
        _reject_foreign(name, first)


def suffix_of_name(name: str) -> str:
    """The suffix for the format, without that of a compression; such as `.csv`."""
    path = PurePosixPath(name.lower())
    return (path.with_suffix("") if path.suffix in COMPRESSED_NAMES else path).suffix


def has_line(head: bytes) -> bool:
    """Whether the first line that is not blank is complete."""
    return b"\n" in head.lstrip(BYTE_ORDER_MARK).lstrip()


def compression_of(name: str, first: bytes) -> Compression:
    """The compression of a file that starts with ``first``.

    Raises:
        FileTypeError: the name says otherwise.
    """
    found = magic_compression(first)
    named = COMPRESSED_NAMES.get(PurePosixPath(name.lower()).suffix, found)
    if named is not found:
        holds = f"{WORDS[found]} data" if found in WORDS else "not compressed data"
        raise FileTypeError(
            f"{name} has the name of {WORDS[named]} data, but its bytes are {holds}. "
            "Correct the name, or upload the file again."
        )
    return found


def magic_compression(head: bytes) -> Compression:
    """The compression that the first bytes have the magic number of."""
    if head.startswith(GZIP_MAGIC):
        return Compression.GZIP
    if head.startswith((ZSTANDARD_MAGIC, *SKIPPABLE_MAGIC)):
        return Compression.ZSTANDARD
    return Compression.NONE


def format_of(name: str, head: bytes) -> FileFormat:
    """The format of a file whose uncompressed bytes start with ``head``, which has the entire first line.

    Raises:
        FileTypeError: it is not supported, or the name says otherwise.
    """
    kind = suffix_of_name(name)
    if head.startswith(PARQUET_MAGIC):
        _check_name(name, kind not in (*JSON_NAMES, *TABLE_NAMES), "Parquet")
        return FileFormat.PARQUET
    _reject_foreign(name, head)
    _check_name(name, kind != ".parquet", "not Parquet")
    if kind in JSON_NAMES:
        _reject_json_document(name, kind, head)
        return FileFormat.JSON_LINES
    is_json = _is_json_lines(head)
    if kind in TABLE_NAMES:
        _check_name(name, not is_json, "JSON Lines")
        return FileFormat.CSV
    return FileFormat.JSON_LINES if is_json else FileFormat.TEXT


def _check_name(name: str, fits: bool, holds: str) -> None:
    if not fits:
        raise FileTypeError(
            f"{name} has the name of a {suffix_of_name(name)} file, but its bytes are {holds}. "
            "Correct the name, or upload the file again."
        )


def _reject_foreign(name: str, head: bytes) -> None:
    for magic, what, remedy in FOREIGN:
        if head.startswith(magic):
            raise FileTypeError(f"{name} is {what}, which is not supported. {remedy}")
    if head[257:262] == b"ustar":
        raise FileTypeError(f"{name} is a tar archive, which is not supported. {UNPACK}")
    for mark, encoding in WIDE:
        if head.startswith(mark):
            raise FileTypeError(f"{name} is text in {encoding}. Save it as UTF-8.")
    start = head[:HEAD_BYTES]
    if start.count(0) * 10 > len(start):
        raise FileTypeError(
            f"{name} is not text: many of its first bytes are zero. If it is UTF-16, save it as UTF-8."
        )
    if len(start.translate(None, CONTROL)) < (1 - MAX_CONTROL) * len(start) and not _is_utf8(start):
        raise FileTypeError(f"{name} is not text: its first bytes are binary data. {EXPORT}")


def _is_utf8(start: bytes) -> bool:
    """Whether it can be the start of UTF-8 text, whose last character may be incomplete."""
    return not codecs.getincrementaldecoder("utf-8")("replace").decode(start).count("\ufffd")


def _is_json_lines(head: bytes) -> bool:
    """Whether the first line and most of the first lines are JSON objects."""
    found = [_is_object(line) for line in _whole_lines(head)]
    return bool(found) and found[0] and 2 * sum(found) > len(found)


def _whole_lines(head: bytes) -> list[bytes]:
    """The first complete lines that are not blank."""
    *lines, last = head.removeprefix(BYTE_ORDER_MARK).split(b"\n", 64)
    whole = [line for line in lines if line.strip()][:8]
    return whole if whole or b"\n" in last else [last]


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _reject_json_document(name: str, kind: str, head: bytes) -> None:
    """Reject a file with one JSON value over many lines, which would otherwise be rejected line by line."""
    start = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if (kind == ".json" and start and not _is_json_lines(head)) or start.startswith(b"["):
        raise FileTypeError(
            f"{name} is not JSON Lines, which has one JSON object on each line. "
            "Write each document as one line, for example with: jq -c '.[]' file.json > file.jsonl"
        )
