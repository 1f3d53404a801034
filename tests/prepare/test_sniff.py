"""Formats are detected from bytes; unsupported ones and contradicting names are refused with a remedy."""

import gzip
import io
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.prepare.conftest import Store
from trainwright.contracts.curation import Compression, FileFormat
from trainwright.contracts.file_types import FileType
from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.sniff import sniff

JSON = b'{"text": "a"}\n{"text": "b"}\n'


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"]}), sink)
    return sink.getvalue()


def _zip() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.txt", "hello")
    return sink.getvalue()


CASES: list[tuple[str, bytes, FileFormat]] = [
    ("a.jsonl", JSON, FileFormat.JSON_LINES),
    ("a.jsonl", b"", FileFormat.JSON_LINES),
    ("a.jsonl", b"broken\n" + JSON, FileFormat.JSON_LINES),
    ("a.txt", JSON, FileFormat.JSON_LINES),
    ("noname", b"\n\n" + JSON, FileFormat.JSON_LINES),
    ("noname", b"\xef\xbb\xbf" + JSON.replace(b"\n", b"\r\n"), FileFormat.JSON_LINES),
    ("noname", b'{"text": "' + b"x" * 2**20 + b'"}\n', FileFormat.JSON_LINES),
    ("a.txt", b"Once upon a time.\n", FileFormat.TEXT),
    ("a.txt", b"", FileFormat.TEXT),
    ("a.txt", b"{not json}\n", FileFormat.TEXT),
    ("a.md", b"# text", FileFormat.TEXT),
    ("a.txt", b"id,text\n1,a\n", FileFormat.TEXT),
    ("a.csv", b"id,text\n1,a\n", FileFormat.CSV),
    ("a.TSV", b"id\ttext\n1\ta\n", FileFormat.CSV),
    ("a.parquet", _parquet(), FileFormat.PARQUET),
    ("noname", _parquet(), FileFormat.PARQUET),
]


@pytest.mark.parametrize(("name", "content", "expected"), CASES)
@pytest.mark.parametrize(
    ("ending", "compress", "compression"),
    [
        ("", lambda content: content, Compression.NONE),
        (".gz", gzip.compress, Compression.GZIP),
        (".zst", zstandard.compress, Compression.ZSTANDARD),
    ],
)
def test_formats_are_detected_from_bytes(
    store: Store,
    name: str,
    content: bytes,
    expected: FileFormat,
    ending: str,
    compress,
    compression: Compression,
) -> None:
    packed = compress(content)
    assert sniff(store(name + ending, packed)) == FileType(expected, compression)
    assert sniff(store(name, packed)) == FileType(expected, compression), "the name need not contain it"


REFUSED: list[tuple[str, bytes, str]] = [
    ("a.parquet", b"id,text\n", "has the name of a .parquet file, but its bytes are not Parquet"),
    ("a.parquet", b"", "not Parquet"),
    ("a.csv", _parquet(), "its bytes are Parquet"),
    ("a.jsonl", _parquet(), "its bytes are Parquet"),
    ("a.csv", JSON, "its bytes are JSON Lines"),
    ("a.txt.gz", b"hello", "has the name of gzip data, but its bytes are not compressed data"),
    (
        "a.txt.zst",
        gzip.compress(b"hello", mtime=0),
        "has the name of Zstandard data, but its bytes are gzip data",
    ),
    ("a.txt.gz", zstandard.compress(b"hello"), "its bytes are Zstandard data"),
    ("a.gz", b"", "not compressed data"),
    (
        "a.txt.gz",
        gzip.compress(gzip.compress(b"x", mtime=0), mtime=0),
        "gzip data within gzip data. Compress it only once",
    ),
    ("a.txt.gz", gzip.compress(zstandard.compress(b"x"), mtime=0), "Zstandard data within gzip data"),
    ("a.txt", "hello".encode("utf-16"), "text in UTF-16. Save it as UTF-8"),
    ("a.txt", "hello".encode("utf-32"), "text in UTF-32. Save it as UTF-8"),
    ("a.txt", bytes(range(256)) * 8, "its first bytes are binary data. Export its text"),
    ("a.csv", "hello,you".encode("utf-16-le"), "many of its first bytes are zero. If it is UTF-16"),
    ("a.txt", _zip(), "is a ZIP archive"),
    ("a.txt.gz", gzip.compress(b"\0" * 257 + b"ustar\0", mtime=0), "tar archive"),
    ("a.txt", b"%PDF-1.7 ...", "is a PDF document"),
    ("a.parquet", b"PARE" + bytes(20), "encrypted Parquet file.*Save it without encryption"),
    ("a.json", b'{\n "text": "a"\n}\n', "is not JSON Lines"),
    ("a.jsonl", b'[{"text": "a"}]', "is not JSON Lines"),
]


@pytest.mark.parametrize(("name", "content", "message"), REFUSED)
def test_unreadable_files_are_refused_by_name_with_a_remedy(
    store: Store, name: str, content: bytes, message: str
) -> None:
    with pytest.raises(UnusableDataError, match=message) as caught:
        sniff(store(name, content))
    assert str(caught.value).startswith(name)
