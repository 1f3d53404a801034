"""Documents are read whole or rejected with their line, wherever a file is cut."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.prepare import documents
from trainwright.prepare.documents import (
    Document,
    Reason,
    Rejected,
    Source,
    count_lines,
    is_validation,
    plan_slices,
    read_documents,
    sample_rank,
)


def _read(source: Source, slice_bytes: int = 2**20) -> list[Document | Rejected]:
    return [item for part in plan_slices([source], slice_bytes) for item in read_documents(source, part)]


LINES: list[tuple[bytes, str | Reason | None]] = [
    (b'{"text": "one"}', "one"),
    (b'{"text": "two", "id": 7}', "two"),
    (b"", None),
    (b"not json", Reason.BAD_JSON),
    (b'["text"]', Reason.BAD_JSON),
    (b"[" * 100_000, Reason.BAD_JSON),
    (b'{"body": "x"}', Reason.NO_TEXT),
    (b'{"text": 5}', Reason.NO_TEXT),
    (b'{"text": " \\n"}', Reason.EMPTY),
    (b'{"text": "\xff"}', Reason.BAD_UTF8),
    (b'{"text": "\\ud800"}', Reason.BAD_UTF8),
    ('{"text": "drei – 三 \U0001f98a"}'.encode(), "drei – 三 \U0001f98a"),
]


def test_good_lines_are_documents_and_bad_ones_are_named(tmp_path: Path) -> None:
    source = Source("a.jsonl", tmp_path / "object-without-suffix")
    source.path.write_bytes(b"\n".join(line for line, _ in LINES))
    expected = [
        Rejected(file="a.jsonl", line=number, reason=want) if isinstance(want, Reason) else Document(want)
        for number, (_, want) in enumerate(LINES, start=1)
        if want is not None
    ]
    assert _read(source) == expected


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path) -> None:
    source = Source("a.jsonl", tmp_path / "a")
    source.path.write_bytes(b'\xef\xbb\xbf{"text": "x"}\r\n{"text": "y"}\r\n')
    assert _read(source) == [Document("x"), Document("y")]


@settings(deadline=None, max_examples=60)
@given(texts=st.lists(st.text(min_size=1).filter(str.strip), max_size=30), slice_bytes=st.integers(1, 400))
def test_slices_cut_at_lines_and_lose_nothing(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], slice_bytes: int
) -> None:
    source = Source("a.jsonl", tmp_path_factory.mktemp("cut") / "a")
    source.path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    parts = plan_slices([source], slice_bytes)
    assert [item.text for item in _read(source, slice_bytes)] == texts
    assert [part.start for part in parts] == [0, *(part.end for part in parts)][:-1] if parts else not texts
    assert sum(count_lines(source, part) for part in parts) == len(texts)
    assert [part.index for part in parts] == list(range(len(parts)))


def test_a_line_beyond_the_limit_is_rejected_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "LINE_BYTES", 1_000)
    source = Source("a.jsonl", tmp_path / "a")
    long = json.dumps({"text": "x" * 5_000})
    source.path.write_text(f'{{"text": "a"}}\n{long}\n{{"text": "b"}}\n{long}')
    reasons = [item.reason if isinstance(item, Rejected) else item.text for item in _read(source, 100)]
    assert reasons == ["a", Reason.TOO_LONG, "b", Reason.TOO_LONG]


def test_prose_becomes_documents_of_bounded_size_that_join_to_the_file(tmp_path: Path) -> None:
    source = Source("book.txt", tmp_path / "a")
    text = "".join(f"Line {number} of a long book.\n" for number in range(10_000))
    source.path.write_text(text)
    found = _read(source)
    assert "".join(item.text for item in found) == text
    assert 3 < len(found) < 6
    assert all(item.text.endswith("\n") for item in found)


@pytest.mark.parametrize("word", ["word ", "語", "é", "x"])
def test_prose_on_one_line_is_cut_between_words_or_characters(tmp_path: Path, word: str) -> None:
    source = Source("text8.txt", tmp_path / "a")
    text = word * 400_000
    source.path.write_text(text)
    parts = plan_slices([source], 2**18)
    found = [item for part in parts for item in read_documents(source, part)]
    assert len(parts) > 1 and len(found) > 5
    texts = [item.text for item in found if isinstance(item, Document)]
    assert "".join(texts) == text
    assert max(len(item.encode()) for item in texts) <= documents.PROSE_BYTES
    assert {item[-1] for item in texts} == {word[-1]}
    assert sum(count_lines(source, part) for part in parts) == 0


@given(text=st.text(alphabet="a é\n語"), piece_bytes=st.integers(4, 9), slice_bytes=st.integers(1, 40))
def test_prose_cut_anywhere_joins_to_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str, piece_bytes: int, slice_bytes: int
) -> None:
    source = Source("a.txt", tmp_path_factory.mktemp("cut") / "a")
    source.path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PROSE_BYTES", piece_bytes)
        found = _read(source, slice_bytes)
        assert all(isinstance(item, Document) for item in found)
        texts = [item.text for item in found if isinstance(item, Document)]
    assert "".join("".join(texts).split()) == "".join(text.split())


def test_bad_bytes_in_prose_cost_their_line(tmp_path: Path) -> None:
    source = Source("book.txt", tmp_path / "a")
    source.path.write_bytes(b"one\ntw\xff\nthree")
    assert _read(source) == [
        Rejected(file="book.txt", line=2, reason=Reason.BAD_UTF8),
        Document("one\nthree"),
    ]


@pytest.mark.parametrize("names", [["a.csv"], ["a.jsonl", "a.jsonl"]])
def test_files_of_other_kinds_and_twins_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(ValueError, match=names[0]):
        plan_slices([Source(name, tmp_path) for name in names])


def test_the_split_takes_its_share_and_never_moves_a_text() -> None:
    texts = [f"document {number}" for number in range(10_000)]
    held = {text for text in texts if is_validation(text, 0.1)}
    assert len(held) == pytest.approx(1_000, abs=120)  # four standard deviations of 30
    assert held <= {text for text in texts if is_validation(text, 0.2)}
    assert not any(is_validation(text, 0.0) for text in texts)


def test_the_sample_is_chosen_independently_of_the_split() -> None:
    held = [f"document {number}" for number in range(10_000) if is_validation(f"document {number}", 0.1)]
    assert sum(sample_rank(text) < 0.5 for text in held) / len(held) == pytest.approx(0.5, abs=0.07)
