"""Chunks have every document once, in order, and their bytes do not depend on interruptions."""

import gzip
import io
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.prepare.conftest import Store
from trainwright.contracts.curation import ReadSpec, TextDocuments
from trainwright.prepare import chunks, text_rows
from trainwright.prepare.chunks import ChunkInfo, read_chunk, read_hashes, read_text_stats, write_chunks
from trainwright.prepare.documents import Document, Source, UnusableDataError
from trainwright.prepare.file_reader import Position, read_rows
from trainwright.prepare.sniff import sniff
from trainwright.prepare.text_stats import compute_text_stats

WHOLE = ReadSpec(field="text")
DRAW = random.Random(3)
TEXTS = [
    " ".join(DRAW.choices(["grün", "red", "語", "x" * 50, "\n"], k=DRAW.randint(1, 30))) + "."
    for _ in range(300)
]


def _lines(texts: list[str], bad_every: int = 7) -> bytes:
    lines = ["oops" if n % bad_every == 3 else json.dumps({"text": text}) for n, text in enumerate(texts)]
    return "\n".join(lines).encode()


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": [None if n % 7 == 3 else text for n, text in enumerate(TEXTS)]}), sink)
    return sink.getvalue()


FILES = {
    "a.jsonl": _lines(TEXTS),
    "a.jsonl.gz": gzip.compress(_lines(TEXTS)),
    "a.csv": b"n,text\n" + b"".join(b'%d,"%s"\n' % (n, text.encode()) for n, text in enumerate(TEXTS)),
    "a.txt": "\n\n".join(TEXTS).encode(),
    "a.parquet": _parquet(),
}


def _write(
    source: Source, folder: Path, start: Position | None = None, number: int = 0, read: ReadSpec = WHOLE
) -> list[ChunkInfo]:
    folder.mkdir(exist_ok=True)
    return list(write_chunks(source, sniff(source), read, folder, start, number))


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 6_000)
    monkeypatch.setattr(chunks, "CHUNK_DOCUMENTS", 40)
    monkeypatch.setattr(text_rows, "DOCUMENT_BYTES", 3_000)


@pytest.mark.slow(target="faults")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("cut", TextDocuments)
def test_writing_interrupted_after_any_chunk_gives_the_same_files(
    store: Store, tmp_path: Path, name: str, cut: TextDocuments
) -> None:
    source, read = store(name, FILES[name]), ReadSpec(field="text", text_documents=cut)
    through = _write(source, tmp_path / "through", read=read)
    files = _files(tmp_path / "through")
    assert len(files) > 4
    ends = range(1, len(through)) if name != "a.parquet" else [1, len(through) - 1]
    for end in ends:
        folder = tmp_path / f"cut-{end}"
        folder.mkdir()
        first = write_chunks(source, sniff(source), read, folder)
        written = [next(first) for _ in range(end)]
        first.close()
        assert written == through[:end]
        assert (
            _write(source, folder, written[-1].next_position, written[-1].number + 1, read) == through[end:]
        )
        assert _files(folder) == files


@pytest.mark.parametrize("name", FILES)
def test_chunks_contain_every_document_once_in_order(store: Store, tmp_path: Path, name: str) -> None:
    source = store(name, FILES[name])
    infos = _write(source, tmp_path / "chunks")
    rows = list(read_rows(source, sniff(source), WHOLE))
    held = [
        list(read_chunk(tmp_path / f"chunks/piece-{info.number:05d}.parquet"))
        for info in infos
        if info.documents
    ]
    assert [document for chunk in held for document in chunk] == [
        row for row in rows if isinstance(row, Document)
    ]
    assert [row for info in infos for row in info.rejected] == [
        row for row in rows if not isinstance(row, Document)
    ]
    for info, chunk in zip(infos, held, strict=False):
        assert (info.documents, info.characters) == (
            len(chunk),
            sum(len(document.text) for document in chunk),
        )
        assert sum(len(document.text.encode()) for document in chunk) <= 6_000
        assert len(chunk) <= 40
    progress = [info.read_bytes for info in infos]
    assert progress == sorted(progress)
    assert progress[-1] == source.path.stat().st_size
    assert infos[-1].next_position is None


def test_a_mask_selects_documents_and_stats_are_those_of_their_texts(store: Store, tmp_path: Path) -> None:
    info = _write(store("a.jsonl", _lines(TEXTS[:30])), tmp_path / "chunks")[0]
    path = tmp_path / "chunks/piece-00000.parquet"
    every = list(read_chunk(path))
    mask = bytes(n % 3 for n in range(info.documents))
    assert list(read_chunk(path, mask)) == every[::3]
    assert list(read_chunk(path, bytes([1]) * info.documents)) == []
    texts = [document.text for document in every]
    expected, found = compute_text_stats(texts, [text.encode() for text in texts]), read_text_stats(path)
    for name in vars(expected):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert np.array_equal(read_hashes(path), expected.hash)


def test_rejected_rows_are_counted_listed_up_to_a_limit_and_end_chunks_too(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 1_500)
    infos = _write(store("a.jsonl", b"oops\n" * 4_000 + b'{"text": "x"}'), tmp_path / "chunks")
    assert [(info.number, info.documents, len(info.rejected), info.rejected_count) for info in infos] == [
        (0, 0, 1_000, 1_500),
        (0, 0, 1_000, 1_500),
        (0, 1, 1_000, 1_000),
    ]
    assert list(_files(tmp_path / "chunks")) == ["piece-00000.parquet"]


def test_an_empty_file_has_no_chunks(store: Store, tmp_path: Path) -> None:
    [info] = _write(store("a.txt", b" \n"), tmp_path / "chunks")
    assert (info.documents, info.rejected_count, info.next_position, info.read_bytes) == (0, 0, None, 2)
    assert not _files(tmp_path / "chunks")


def test_chunks_written_before_a_corrupt_part_are_intact(store: Store, tmp_path: Path) -> None:
    packed = gzip.compress(_lines(TEXTS))
    source, found = store("a.jsonl.gz", packed[: len(packed) // 2]), list[ChunkInfo]()
    with pytest.raises(UnusableDataError, match="cut short"):
        for info in write_chunks(source, sniff(source), WHOLE, tmp_path):
            found.append(info)
    assert {f"piece-{info.number:05d}.parquet" for info in found} == {
        path.name for path in tmp_path.glob("piece-*")
    }


@pytest.mark.slow(target="faults")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.txt"])
def test_corrupt_text_ends_in_rows_or_our_error(store: Store, name: str, data: st.DataObject) -> None:
    content = bytearray(FILES[name][:2_000])
    nasty = st.sampled_from(b'",\n\r\t\0\xff\xfe{}[]\\;|')
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(nasty | st.integers(0, 255))
    source = store(name, bytes(content))
    try:
        rows = list(read_rows(source, sniff(source), WHOLE))
    except UnusableDataError as error:
        assert str(error).startswith(name)
    else:
        assert all(row.text.strip() if isinstance(row, Document) else row.reason for row in rows)
