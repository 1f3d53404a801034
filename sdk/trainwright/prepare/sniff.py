"""What a file holds, as its first bytes say; its name may add to that and must not contradict it.

gzip, Zstandard and Parquet have magic numbers. The rest is text: JSON Lines when its first lines are JSON objects, CSV
when the name says so (CSV has no mark of its own), else plain text. What is known to be something else, such as
an archive or an image, is refused with what to do about it.
"""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from pathlib import PurePosixPath

from trainwright.contracts.recipe import Compression, FileFormat
from trainwright.prepare.decompress import SKIPPABLE_MAGIC, PlainStream
from trainwright.prepare.documents import DOCUMENT_BYTES, Source, UnusableDataError

HEAD_BYTES = 64 * 2**10
GZIP_MAGIC = b"\x1f\x8b"
ZSTANDARD_MAGIC = b"\x28\xb5\x2f\xfd"
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
MOST_CONTROL = 0.02
"""Text in any encoding of single bytes has hardly a control character; of random bytes every tenth is one."""


@dataclass(frozen=True)
class Sniffed:
    """What a stored file holds."""

    format: FileFormat
    compression: Compression


def sniff(source: Source) -> Sniffed:
    """What ``source`` holds.

    Raises:
        UnusableDataError: its bytes are of no kind that is read here, contradict its name, or are broken.
    """
    compression = _compression(source)
    with PlainStream(source, compression) as stream:
        head = _head(stream)
    if compression is not Compression.NONE and _compression_of(head) is not Compression.NONE:
        raise UnusableDataError(
            f"{source.name} holds {WORDS[_compression_of(head)]} data inside of {WORDS[compression]} data. "
            "Compress it only once."
        )
    return Sniffed(_format(source.name, head), compression)


def kind_of_name(name: str) -> str:
    """The ending that says what a file holds, the one of a compression left out; such as `.csv`."""
    path = PurePosixPath(name.lower())
    return (path.with_suffix("") if path.suffix in COMPRESSED_NAMES else path).suffix


def _compression(source: Source) -> Compression:
    with source.path.open("rb") as file:
        found = _compression_of(file.read(4))
    named = COMPRESSED_NAMES.get(PurePosixPath(source.name.lower()).suffix, found)
    if named is not found:
        holds = f"{WORDS[found]} data" if found in WORDS else "no compressed data"
        raise UnusableDataError(
            f"{source.name} is named like {WORDS[named]} data, but its bytes are {holds}. "
            "Give it the name that fits, or upload it again."
        )
    return found


def _compression_of(head: bytes) -> Compression:
    if head.startswith(GZIP_MAGIC):
        return Compression.GZIP
    if head.startswith((ZSTANDARD_MAGIC, *SKIPPABLE_MAGIC)):
        return Compression.ZSTANDARD
    return Compression.NONE


def _head(stream: PlainStream) -> bytes:
    """The first bytes, so many that the first line is whole, unless it is longer than a document may be."""
    head = stream.read(HEAD_BYTES)
    while b"\n" not in head.lstrip(BYTE_ORDER_MARK).lstrip() and len(head) <= DOCUMENT_BYTES:
        more = stream.read(HEAD_BYTES + 3 * len(head))
        if not more:
            break
        head += more
    return head


def _format(name: str, head: bytes) -> FileFormat:
    kind = kind_of_name(name)
    if head.startswith(PARQUET_MAGIC):
        _check_name(name, kind not in (*JSON_NAMES, *TABLE_NAMES), "Parquet")
        return FileFormat.PARQUET
    _refuse_foreign(name, head)
    _check_name(name, kind != ".parquet", "not Parquet")
    if kind in JSON_NAMES:
        _refuse_whole_json(name, kind, head)
        return FileFormat.JSON_LINES
    is_json = _is_json_lines(head)
    if kind in TABLE_NAMES:
        _check_name(name, not is_json, "JSON Lines")
        return FileFormat.CSV
    return FileFormat.JSON_LINES if is_json else FileFormat.TEXT


def _check_name(name: str, fits: bool, holds: str) -> None:
    if not fits:
        raise UnusableDataError(
            f"{name} is named like a {kind_of_name(name)} file, but its bytes are {holds}. "
            "Give it the name that fits, or upload it again."
        )


def _refuse_foreign(name: str, head: bytes) -> None:
    for magic, what, remedy in FOREIGN:
        if head.startswith(magic):
            raise UnusableDataError(f"{name} is {what}, which is not read here. {remedy}")
    if head[257:262] == b"ustar":
        raise UnusableDataError(f"{name} is a tar archive, which is not read here. {UNPACK}")
    for mark, encoding in WIDE:
        if head.startswith(mark):
            raise UnusableDataError(f"{name} is text in {encoding}. Save it as UTF-8.")
    start = head[:HEAD_BYTES]
    if start.count(0) * 10 > len(start):
        raise UnusableDataError(
            f"{name} is no text: many of its first bytes are zero. If it is text in UTF-16, save it as UTF-8."
        )
    if len(start.translate(None, CONTROL)) < (1 - MOST_CONTROL) * len(start) and not _is_utf8(start):
        raise UnusableDataError(f"{name} is no text: its first bytes are binary data. {EXPORT}")


def _is_utf8(start: bytes) -> bool:
    """Whether it can be the beginning of a text in UTF-8; its last character may be cut off."""
    return not codecs.getincrementaldecoder("utf-8")("replace").decode(start).count("\ufffd")


def _is_json_lines(head: bytes) -> bool:
    """Most of the first lines are JSON objects, and the first one is."""
    found = [_is_object(line) for line in _whole_lines(head)]
    return bool(found) and found[0] and 2 * sum(found) > len(found)


def _whole_lines(head: bytes) -> list[bytes]:
    """The first lines that are not blank; the last one may be cut off by the head's end, and is left out then."""
    *lines, last = head.removeprefix(BYTE_ORDER_MARK).split(b"\n", 64)
    whole = [line for line in lines if line.strip()][:8]
    return whole if whole or b"\n" in last else [last]


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _refuse_whole_json(name: str, kind: str, head: bytes) -> None:
    """A file that is one JSON value over many lines would be rejected line by line."""
    start = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if (kind == ".json" and start and not _is_json_lines(head)) or start.startswith(b"["):
        raise UnusableDataError(
            f"{name} is not JSON Lines, which has one JSON object on each line. "
            "Write each document as one line, for instance with: jq -c '.[]' file.json > file.jsonl"
        )
