"""Parquet columns of every layout are read; false or corrupt metadata ends in our own error."""

import gzip
import io
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
import zstandard

from tests.prepare.conftest import Store
from trainwright.contracts.curation import ReadSpec
from trainwright.prepare import parquet_process
from trainwright.prepare.chunks import write_chunks
from trainwright.prepare.documents import DOCUMENT_BYTES, Document, Reason, Source, UnusableDataError
from trainwright.prepare.file_reader import columns_of, positioned_rows, read_rows
from trainwright.prepare.limits import MAX_COLUMNS
from trainwright.prepare.parquet_pages import InvalidPageError, largest_page_bytes
from trainwright.prepare.sniff import sniff

DEFAULT = ReadSpec()
TEXT = ReadSpec(field="text")
TEXTS = [f"text {number % 7} of – many" for number in range(1_000)]


def _parquet(columns: dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def _read(source: Source, read: ReadSpec = DEFAULT) -> list[str]:
    return [
        row.text if isinstance(row, Document) else row.reason
        for row in read_rows(source, sniff(source), read)
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TEXTS),
        pa.array(TEXTS, pa.large_string()),
        pa.array(TEXTS, pa.string_view()),
        pa.array(TEXTS).dictionary_encode(),
        pa.array([text.encode() for text in TEXTS], pa.binary()),
        pa.chunked_array([TEXTS[:10], TEXTS[10:]]),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 77, "compression": "zstd", "data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"text": "DELTA_BYTE_ARRAY"}, "compression": "gzip"},
        {
            "use_dictionary": False,
            "data_page_size": 100,
            "write_page_checksum": True,
            "write_page_index": True,
        },
    ],
    ids=["plain", "groups", "delta", "pages"],
)
def test_texts_of_every_layout_are_read(store: Store, column: Any, options: dict[str, Any]) -> None:
    content = _parquet({"id": range(1_000), "text": column}, **options)
    if "column_encoding" in options and pa.types.is_dictionary(column.type):
        _refused(store, content, "Not yet implemented")  # by the library
        return
    assert _read(store("a.parquet", content)) == TEXTS


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_parquet_file_may_be_compressed_again(store: Store, pack: Any) -> None:
    assert _read(store("a.parquet", pack(_parquet({"text": TEXTS})))) == TEXTS


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_decompressed_files_are_in_the_given_folder(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    source = replace(store("a.parquet", gzip.compress(_parquet({"text": TEXTS}))), folder=folder)
    rows = read_rows(source, sniff(source), DEFAULT)
    next(rows)
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert any(name.startswith(str(folder)) for name in opened)


def test_nulls_and_bad_bytes_are_rejected_by_row(store: Store) -> None:
    texts = pa.array([b"a", None, b"\xff", b" ", b"b"], pa.binary())
    expected = ["a", "has null in field 'text' instead of text", Reason.BAD_UTF8, Reason.EMPTY, "b"]
    assert _read(store("a.parquet", _parquet({"text": texts}))) == expected
    unchecked = pa.StringArray.from_buffers(5, *texts.buffers()[1:], texts.buffers()[0])
    source = store("a.parquet", _parquet({"text": unchecked}))
    assert _read(source) == expected
    rows = read_rows(source, sniff(source), ReadSpec())
    assert [row.line for row in rows] == [1, 2, 3, 4, 5]


def test_chats_are_lists_of_structs(store: Store) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    plain = [
        [{"role": "user", "content": "Hi"}, {"role": "bot", "content": "Ho"}],
        None,
        [],
        [{"role": None, "content": "x"}],
    ]
    expected = [
        "<|user|>\nHi\n<|bot|>\nHo\n",
        "has null in field 'messages' instead of text",
        Reason.EMPTY,
        Reason.BAD_MESSAGE,
    ]
    assert _read(store("a.parquet", _parquet({"messages": plain}))) == expected
    nested = _parquet({"messages": [[{"role": "user", "content": parts}]]})
    assert _read(store("a.parquet", nested)) == ["<|user|>\nab\n"]


def test_usable_columns_are_marked(store: Store) -> None:
    content = _parquet(
        {"n": [1], "a.b": ["x"], "ids": [[1]], "chat": [[{"role": "a", "content": "b", "more": 1}]]}
    )
    source = store("a.parquet", content)
    found = [(column.name, column.type, column.usable) for column in columns_of(source, sniff(source))]
    assert found == [
        ("n", "int64", False),
        ("a.b", "text", True),
        ("ids", "list<element: int64>", False),
        ("chat", "messages", True),
    ]
    assert _read(source, ReadSpec(field="a.b")) == ["x"]
    with pytest.raises(UnusableDataError, match="it has no column 'ids' of texts or chat messages"):
        _read(source, ReadSpec(field="ids"))


def test_a_table_of_very_many_columns_is_refused(store: Store) -> None:
    source = store("a.parquet", _parquet({f"{number}": ["x"] for number in range(MAX_COLUMNS + 1)}))
    with pytest.raises(UnusableDataError, match="it has 10,001 columns, more than 10,000"):
        columns_of(source, sniff(source))


@pytest.mark.slow(target="faults")
def test_reading_resumed_at_any_row_gives_the_same_documents(store: Store) -> None:
    source = store("a.parquet", _parquet({"text": TEXTS[:15]}, row_group_size=4))
    sniffed = sniff(source)
    for number, row in enumerate(positioned_rows(source, sniffed, TEXT), 1):
        rest = [
            later.text
            for later in read_rows(source, sniffed, TEXT, row.position)
            if isinstance(later, Document)
        ]
        assert rest == TEXTS[number:15]


GOOD = _parquet(
    {"text": TEXTS}, use_dictionary=False, compression="snappy", data_page_size=2_000, write_batch_size=10
)


def _refused(store: Store, content: bytes, message: str) -> None:
    with pytest.raises(UnusableDataError, match=message) as caught:
        _read(store("a.parquet", content))
    assert str(caught.value).startswith("a.parquet")


def test_a_footer_with_a_false_length_is_refused_before_it_is_read(store: Store) -> None:
    _refused(
        store,
        GOOD[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1",
        "states a footer of 2,147,483,647 bytes",
    )
    _refused(store, GOOD[:-8] + (len(GOOD)).to_bytes(4, "little") + b"PAR1", "states a footer")
    _refused(store, GOOD[:-100], "does not end like a Parquet file: it was cut short")
    _refused(
        store,
        GOOD[:-8] + (5).to_bytes(4, "little") + b"PAR1",
        "a.parquet cannot be read as Parquet: it is broken",
    )
    _refused(store, b"PAR1" + bytes(3), "does not end like")


def _pages(content: bytes) -> tuple[int, int]:
    """Positions of the first column's pages."""
    column = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0)
    return column.data_page_offset, column.total_compressed_size


def test_page_headers_are_read_as_the_library_writes_them() -> None:
    for options in ({}, {"data_page_version": "2.0"}, {"write_page_checksum": True}, {"compression": "none"}):
        content = _parquet(
            {"text": [text * 50 for text in TEXTS]},
            use_dictionary=False,
            data_page_size=9_000,
            write_batch_size=10,
            **options,
        )
        largest = largest_page_bytes(io.BytesIO(content), *_pages(content))
        # A page ends after the batch of values that fills it.
        assert 9_000 <= largest < 100_000


def _varint(value: int) -> bytes:
    zigzag, found = value << 1, b""
    while zigzag > 127:
        found += bytes([zigzag & 127 | 128])
        zigzag >>= 7
    return found + bytes([zigzag])


def _header(plain_bytes: int, stored_bytes: int) -> bytes:
    """Type, two lengths and a data page header of 1,000 plain values."""
    data = b"\x15" + _varint(1_000) + b"\x15\x00\x15\x06\x15\x06\x00"
    return b"\x15\x00\x15" + _varint(plain_bytes) + b"\x15" + _varint(stored_bytes) + b"\x2c" + data + b"\x00"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_header(2**30 + 1, 10) + bytes(10), "states 1,073,741,825 decompressed bytes in 10 stored"),
        (_header(2**26 + 2_001, 10) + bytes(10), "states 67,110,865 decompressed bytes in 10 stored"),
        (_header(10, 2**29), "states 536,870,912 stored bytes, more than the column has left"),
        (_header(10, 10), "states 10 stored bytes, more than"),
        (b"\x18\xff\xff\xff\x7f", "the header of a page never ends"),
        (b"\x15\x00\x00", "states no length"),
        (b"\x1c" * 50, "nested too deeply"),
        (b"\x19\xf9\xff\xff\xff\x7f" + b"\xf9\xff\xff\x7f" * 40, "nested too deeply"),
        (b"\x1b\x00", "contains an unknown type"),
        (b"\x15" + b"\xff" * 30, "a number without an end"),
    ],
)
def test_pages_with_false_sizes_are_detected_before_decompression(content: bytes, message: str) -> None:
    with pytest.raises(InvalidPageError, match=message):
        largest_page_bytes(io.BytesIO(content), 0, len(content))


def test_a_page_with_a_false_size_is_refused_with_the_name_of_its_file(store: Store) -> None:
    start, _ = _pages(GOOD)
    lying = bytearray(GOOD)
    lying[start + 3 : start + 5] = b"\xff\x7f"  # the plain length of the first page
    _refused(store, bytes(lying), "a.parquet cannot be read as Parquet: it is broken")


def test_an_encrypted_file_is_refused(store: Store) -> None:
    class Client(pe.KmsClient):
        def __init__(self, _: object) -> None:
            super().__init__()

        def wrap_key(self, key_bytes: bytes, _: str) -> bytes:
            return key_bytes

        def unwrap_key(self, wrapped_key: bytes, _: str) -> bytes:
            return wrapped_key

    for plaintext_footer in (False, True):
        keys = pe.EncryptionConfiguration(
            footer_key="f", column_keys={"c": ["text"]}, plaintext_footer=plaintext_footer
        )
        factory = pe.CryptoFactory(Client)
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), keys)
        content = _parquet({"text": TEXTS}, encryption_properties=properties)
        with pytest.raises(UnusableDataError, match=r"encrypted.*\. Save it without encryption"):
            _read(store("a.parquet", content))


@pytest.mark.slow(target="faults")
def test_a_dictionary_that_repeats_a_long_text_is_stopped_at_the_ratio(store: Store) -> None:
    content = _parquet({"text": pa.array(["x" * 2**20] * 150).dictionary_encode()}, compression="zstd")
    assert len(content) < 100_000
    _refused(store, content, "expands to more than .* bytes of text, more than 200 to 1")


def test_values_that_are_rejected_count_towards_the_ratio_and_towards_the_chunk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that is too long for a document takes as much time to read as others, and yields nothing that would end a
    chunk."""
    monkeypatch.setattr("trainwright.prepare.chunks.CHUNK_READ_BYTES", 40 * 2**20)
    too_long = pa.array(["x" * (DOCUMENT_BYTES + 1)] * 12).dictionary_encode()
    source = store("a.parquet", _parquet({"text": too_long}, compression="zstd", row_group_size=4))
    assert source.path.stat().st_size < 10_000
    chunks = write_chunks(source, sniff(source), TEXT, tmp_path)
    first = next(chunks)
    assert (first.documents, first.rejected_count, first.read_bytes > 0) == (0, 4, True), "where a job yields"
    with pytest.raises(UnusableDataError, match="more than 200 to 1"):
        list(chunks)
    with pytest.raises(UnusableDataError, match="more than 200 to 1"):  # a job that continues keeps counting
        list(write_chunks(source, sniff(source), TEXT, tmp_path, first.next_position))


def test_batches_shrink_as_pages_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_process, "BATCH_BYTES", 10_000)
    out = io.BytesIO()
    file = io.BytesIO(GOOD)
    parquet_process.write_values(pq.ParquetFile(file), file, out, "text", 5)
    batches = [batch.column(0).to_pylist() for batch in pa.ipc.open_stream(out.getvalue())]
    assert [text for batch in batches for text in batch] == TEXTS[5:]
    assert max(map(len, batches)) < 5


CORRUPTIONS = 120
SMALL = {
    "plain": _parquet({"text": TEXTS[:60], "n": range(60)}, use_dictionary=False, compression="none"),
    "dictionary": _parquet({"text": TEXTS[:60]}, compression="zstd", row_group_size=20),
    "chat": _parquet({"messages": [[{"role": "user", "content": text}] for text in TEXTS[:60]]}),
}


@pytest.mark.slow(target="faults")
@pytest.mark.parametrize("kind", SMALL)
def test_corrupt_files_end_in_rows_or_our_error(store: Store, kind: str) -> None:
    """Each file needs its own process, so there are few; the next test tries many."""
    for seed in range(3):
        source = store("a.parquet", _corrupt(SMALL[kind], seed))
        try:
            assert len(_read(source, ReadSpec(field="messages" if kind == "chat" else "text"))) <= 10_000
        except UnusableDataError as error:
            assert str(error).startswith("a.parquet cannot be read as Parquet: ")


@pytest.mark.slow(target="faults")
@pytest.mark.parametrize("kind", SMALL)
def test_many_corrupt_files_are_read_refused_or_crash_their_reader(
    kind: str, tmp_path: Path, repository: Path
) -> None:
    """All of these are reported to the user. An uncaught exception or a reader that hangs is not."""
    for seed in range(CORRUPTIONS):
        (tmp_path / f"{seed}.parquet").write_bytes(_corrupt(SMALL[kind], seed))
    field = "messages" if kind == "chat" else "text"
    command = [sys.executable, "-m", "tests.prepare.read_many", str(tmp_path), field]
    done = subprocess.run(command, cwd=repository, check=True, stdout=subprocess.PIPE, text=True)
    ends = Counter(json.loads(done.stdout).values())
    assert ends.keys() <= {0, parquet_process.WRONG, -signal.SIGABRT, -signal.SIGSEGV}, ends
    assert ends.total() == CORRUPTIONS and ends[0] and ends[parquet_process.WRONG], "both kinds occurred"


def _corrupt(content: bytes, seed: int) -> bytes:
    draw, broken = random.Random(seed), bytearray(content)
    for _ in range(draw.randint(1, 4)):
        broken[draw.randrange(4, len(broken) - 9)] = draw.randrange(256)
    return bytes(broken)


def test_a_file_that_crashes_its_reader_is_refused(store: Store) -> None:
    """The library checks histogram sizes in a place where it can only abort."""
    aborting = _corrupt(SMALL["plain"], 1377)
    program = "import sys, io, pyarrow.parquet as pq; pq.ParquetFile(io.BytesIO(sys.stdin.buffer.read())).metadata.row_group(0).column(0)"
    lost = subprocess.run([sys.executable, "-c", program], input=aborting, capture_output=True)
    if lost.returncode >= 0:
        pytest.fail("the library survives this file now: choose another one")
    _refused(store, aborting, "it makes the reader crash")
