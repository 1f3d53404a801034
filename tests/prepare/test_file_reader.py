"""Rows become documents or are rejected with line and reason. A file that cannot be read reports why."""

import csv
import gzip
import io
import json
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.prepare.conftest import Store
from trainwright.contracts.api.uploads import Column
from trainwright.contracts.curation import ReadSpec, TextDocuments
from trainwright.prepare import csv_rows, field_values, json_rows, lines, text_rows
from trainwright.prepare.documents import Document, Reason, Rejected, Source, UnusableDataError
from trainwright.prepare.file_reader import columns_of, positioned_rows, read_rows, resolve_field
from trainwright.prepare.limits import MAX_COLUMNS
from trainwright.prepare.sniff import sniff

Found = list[tuple[int, str]]
WHOLE = ReadSpec()
BLANK_LINE = ReadSpec(text_documents=TextDocuments.BLANK_LINE)
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
}


def _read(source: Source, read: ReadSpec = WHOLE) -> Found:
    """Line and text of documents, line and reason of rejected rows."""
    rows = read_rows(source, sniff(source), read)
    return [(row.line, row.text if isinstance(row, Document) else row.reason) for row in rows]


JSON_LINES: list[tuple[bytes, str | None]] = [
    (b'{"text": "one"}', "one"),
    (b'{"id": 7, "text": "two", "score": NaN}', "two"),
    (b'{"text": "three"}\r', "three"),
    (b"", None),
    (b"  \t", None),
    (b"not json", "is not a JSON object"),
    (b'["text"]', "is not a JSON object"),
    (b"7", "is not a JSON object"),
    (b"[" * 100_000, "is not a JSON object"),
    (b'{"a":' * 100_000, "is not a JSON object"),
    (b'{"text": "x"', "is not a JSON object"),
    (b'{"n": ' + b"9" * 5_000 + b', "text": "x"}', "is not a JSON object"),
    (b'{"body": "x"}', "has no field 'text'"),
    (b'{"text": 5}', "has a number in field 'text' instead of text"),
    (b'{"text": "first", "text": "last"}', "last"),
    (b'{"text": null}', "has null in field 'text' instead of text"),
    (b'{"text": true}', "has a yes or no in field 'text' instead of text"),
    (b'{"text": {"a": 1}}', "has an object in field 'text' instead of text"),
    (b'{"text": ["a", "b"]}', "has a list in field 'text' instead of text"),
    (b'{"text": []}', "is empty"),
    (b'{"text": " \\n"}', "is empty"),
    (b'{"text": "\xff"}', Reason.BAD_UTF8),
    (b'{"text": "\\ud800"}', Reason.BAD_UTF8),
    (b'{"text": "\xed\xa0\x80"}', Reason.BAD_UTF8),
    (b'{"text": "zero \\u0000 stays"}', "zero \0 stays"),
    (b'{"text": "\\ud83e\\udd8a"}', "\U0001f98a"),
    ('{"text": "drei – 三 \U0001f98a"}'.encode(), "drei – 三 \U0001f98a"),
]


@pytest.mark.parametrize("ending", PACKERS)
def test_valid_json_lines_are_documents_and_invalid_ones_are_reported(store: Store, ending: str) -> None:
    content = b"\xef\xbb\xbf" + b"\n".join(line for line, _ in JSON_LINES)
    expected = [(number, want) for number, (_, want) in enumerate(JSON_LINES, 1) if want is not None]
    assert _read(store(f"a.jsonl{ending}", PACKERS[ending](content))) == expected
    assert _read(store(f"a.jsonl{ending}", PACKERS[ending](content + b"\n"))) == expected


CHATS: list[tuple[object, str]] = [
    ([{"role": "user", "content": "Hi"}, {"role": "bot", "content": "Ho"}], "<|user|>\nHi\n<|bot|>\nHo\n"),
    (
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        "<|user|>\nab\n",
    ),
    ([{"role": "user", "content": [{"type": "image", "url": "x"}]}], Reason.BAD_MESSAGE),
    ([{"role": "user"}], Reason.BAD_MESSAGE),
    ([{"role": "user", "content": None}], Reason.BAD_MESSAGE),
    ([{"role": "user", "content": "\ud800"}], Reason.BAD_UTF8),
    ([{"role": "", "content": "a"}], Reason.BAD_MESSAGE),
    ([{"content": "a"}], Reason.BAD_MESSAGE),
    ("plain text stays", "plain text stays"),
]


def test_chats_become_texts_with_a_line_for_each_role(store: Store) -> None:
    content = "".join(json.dumps({"messages": chat}) + "\n" for chat, _ in CHATS).encode()
    assert [text for _, text in _read(store("a.jsonl", content))] == [want for _, want in CHATS]


def test_a_line_beyond_the_limit_is_rejected_without_being_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_rows, "DOCUMENT_BYTES", 1_000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 300)
    good, long = json.dumps({"text": "x" * 980}), json.dumps({"text": "x" * 5_000})
    assert len(good) < 1_000
    source = store("a.jsonl", "\n".join([good, long, good, long]).encode())
    too_long = "is longer than 8 MiB"
    assert _read(source) == [(1, "x" * 980), (2, too_long), (3, "x" * 980), (4, too_long)]


def test_a_chat_longer_than_a_document_is_rejected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_values, "DOCUMENT_BYTES", 20)
    chat = {"messages": [{"role": "user", "content": "é" * 6}]}
    assert _read(store("a.jsonl", json.dumps(chat).encode())) == [(1, "is longer than 8 MiB")]
    chat["messages"][0]["content"] = "é" * 5
    assert _read(store("a.jsonl", json.dumps(chat).encode())) == [(1, "<|user|>\nééééé\n")]


def test_a_line_of_too_many_objects_is_rejected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "MANY_BRACES", 5)
    monkeypatch.setattr(json_rows, "MAX_OBJECTS", 10)
    braces = json.dumps({"text": "{" * 100})
    objects = json.dumps({"text": "a", "more": [{}] * 20})
    assert _read(store("a.jsonl", f"{braces}\n{objects}\n".encode())) == [
        (1, "{" * 100),
        (2, "is not a JSON object"),
    ]


TEXTS: list[tuple[bytes, Found, Found]] = [
    # Content, result as one document, result split at blank lines.
    (b"one\ntwo\n", [(1, "one\ntwo\n")], [(1, "one\ntwo")]),
    (b"\xef\xbb\xbfone", [(1, "one")], [(1, "one")]),
    (b"", [], []),
    (b" \n\t\n\n", [], []),
    (
        b"one\n\ntwo\n \n\n\n  three",
        [(1, "one\n\ntwo\n \n\n\n  three")],
        [(1, "one"), (3, "two"), (7, "  three")],
    ),
    (b"\n\none\r\n\r\ntwo\r\n", [(1, "\n\none\r\n\r\ntwo\r\n")], [(3, "one"), (5, "two")]),
    (b"one\n\ntw\xff\n\nthree", [(3, Reason.BAD_UTF8)], [(1, "one"), (3, Reason.BAD_UTF8), (5, "three")]),
    ("größe".encode("latin-1"), [(1, Reason.BAD_UTF8)], [(1, Reason.BAD_UTF8)]),
]


@pytest.mark.parametrize(("content", "whole", "by_blank_line"), TEXTS)
@pytest.mark.parametrize("ending", PACKERS)
def test_text_is_one_document_or_split_at_blank_lines(
    store: Store, content: bytes, whole: Found, by_blank_line: Found, ending: str
) -> None:
    source = store(f"a.txt{ending}", PACKERS[ending](content))
    assert _read(source) == whole
    assert _read(source, BLANK_LINE) == by_blank_line


def test_long_text_is_split_at_the_last_line_end_that_fits(store: Store) -> None:
    text = "".join(f"Line {number} of a long book.\n" for number in range(700_000))
    found = _read(store("book.txt", text.encode()))
    assert "".join(part for _, part in found) == text
    assert [2**23 - len(part) < 40 for _, part in found] == [True, True, False]
    assert all(part.endswith("\n") for _, part in found)
    assert [line for line, _ in found] == [int(part.split()[1]) + 1 for _, part in found]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(alphabet="ab é\n語\r\U0001f98a", max_size=80),
    most=st.integers(4, 12),
    ahead=st.integers(1, 30),
)
def test_parts_of_a_split_text_concatenate_to_the_file(
    store: Store, text: str, most: int, ahead: int
) -> None:
    source = store("a.txt", text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "DOCUMENT_BYTES", most)
        patch.setattr(text_rows, "AHEAD_BYTES", ahead)
        whole, by_blank_line = _read(source), _read(source, BLANK_LINE)
    for found in (whole, by_blank_line):
        assert "".join("".join(part for _, part in found).split()) == "".join(text.split())
        assert all(len(part.encode()) <= most for _, part in found)
        for line, part in found:
            assert part.split("\n")[0] in text.split("\n")[line - 1]
    for _, part in whole[:-1]:
        assert part[-1] in " \n\r" or not set(part) & set(" \n\r"), "split at white space if there is any"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="ab \n\t", max_size=60))
def test_blank_lines_split_a_text_into_its_paragraphs(store: Store, text: str) -> None:
    paragraphs: list[list[str]] = [[]]
    for line in text.split("\n"):
        paragraphs += [[]] if not line.strip() else []
        if line.strip():
            paragraphs[-1].append(line)
    expected = ["\n".join(lines).rstrip() for lines in paragraphs if lines]
    assert [part for _, part in _read(store("a.txt", text.encode()), BLANK_LINE)] == expected


def _table(rows: list[list[str]], **options: object) -> bytes:
    sink = io.StringIO()
    csv.writer(sink, **options).writerows(rows)
    return sink.getvalue().encode()


ROWS = [
    ["id", "text"],
    ["1", "plain"],
    ["2", 'a "quoted", word'],
    ["3", "two\nlines; and\ttabs"],
    ["4", "été"],
]


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", _table(ROWS)),
        ("a.csv", b"\xef\xbb\xbf" + _table(ROWS)),
        ("a.csv", _table(ROWS, lineterminator="\n")),
        ("a.csv", _table(ROWS).rstrip()),
        ("a.csv", _table(ROWS, delimiter=";")),
        ("a.csv", _table(ROWS, delimiter="|", quoting=csv.QUOTE_ALL)),
        ("a.tsv", _table(ROWS, delimiter="\t")),
        ("a.csv", _table(ROWS, delimiter="\t")),
    ],
)
def test_tables_of_every_dialect_are_parsed(store: Store, name: str, content: bytes, ending: str) -> None:
    found = _read(store(name + ending, PACKERS[ending](content)))
    assert found == [(line, row[1]) for line, row in zip((2, 3, 4, 6), ROWS[1:], strict=True)]


CSV_ROWS: list[tuple[bytes, str | None]] = [
    (b"1,good", "good"),
    (b"", None),
    (b"2", "has a different number of cells than the header"),
    (b"3,a,b", "has a different number of cells than the header"),
    (b"4,", "is empty"),
    (b"5,\xe9t\xe9", Reason.BAD_UTF8),
    (b"\xe9,other cells may be anything", "other cells may be anything"),
    (b"7,zero\0byte", "zero\0byte"),
    (b"8,carriage\rreturn", "cannot be read as a row of a table"),
    (b'9,mid"quote', 'mid"quote'),
    (b"10,last", "last"),
]


def test_valid_rows_of_a_table_are_documents_and_invalid_ones_are_reported(store: Store) -> None:
    content = b"id,text\n" + b"\n".join(line for line, _ in CSV_ROWS)
    expected = [(number, want) for number, (_, want) in enumerate(CSV_ROWS, 2) if want is not None]
    assert _read(store("a.csv", content)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "there is no header"),
        (b"\n1,a\n", "there is no header"),
        (b"id,t\xe9xt\n", "the header cannot be read"),
        (b"id\rtext\r1\ra\r", "the header cannot be read"),
        (b'id,text\n1,"never closed\n2,b\n', "the quotation that begins in the row of line 2 never ends"),
        (b"id,body\n1,a\n", "There is no field 'text' or 'messages'. Choose the field .*: 'id', 'body'"),
        (b"text,text\na,b\n", "Two columns are named 'text'. Rename one"),
        (b"," * 20_000 + b"text\n", "the header is too long"),
    ],
)
def test_an_unreadable_table_is_reported_with_its_reason(store: Store, content: bytes, message: str) -> None:
    with pytest.raises(UnusableDataError, match=message) as caught:
        _read(store("a.csv", content))
    assert str(caught.value).startswith("a.csv")


def test_a_row_beyond_the_limit_is_skipped_entirely(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "ROW_BYTES", 100)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 37)
    many_lines = 'a "b",\n' * 60
    rows = [
        ["id", "text"],
        ["1", "one"],
        ["2", many_lines],
        ["3", "three"],
        ["4", "x" * 500],
        ["5", "y, " * 90 + '"z"'],
    ]
    found = _read(store("a.csv", _table([*rows, ["6", "six"]], lineterminator="\n")))
    too_long = "is longer than 8 MiB"
    assert found == [(2, "one"), (3, too_long), (64, "three"), (65, too_long), (66, too_long), (67, "six")]
    with pytest.raises(UnusableDataError, match="the row of line 3 never ends"):
        _read(store("a.csv", b'id,text\n1,a\n2,"' + b"open\n" * 100))


ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(ANY_TEXT, max_size=12), delimiter=st.sampled_from(",;\t|"), block=st.integers(1, 50))
def test_any_text_can_be_read_back_from_a_table(
    store: Store, texts: list[str], delimiter: str, block: int
) -> None:
    rows = [["id", "text"], *([str(number), text] for number, text in enumerate(texts))]
    source = store("a.csv", _table(rows, delimiter=delimiter, quoting=csv.QUOTE_ALL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        found = [text for _, text in _read(source)]
    assert found == [text if text.strip() else "is empty" for text in texts]


CONTENTS = {
    "a.jsonl": b"\xef\xbb\xbf" + b"\n".join(line for line, _ in JSON_LINES),
    "a.csv": _table(ROWS * 3) + b"\n" + b"\n".join(line for line, _ in CSV_ROWS),
    "a.txt": b"one\n\ntwo three\n\n\n" + "größe und 語\n".encode() * 9 + b"\xff\nx",
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("read", [ReadSpec(), BLANK_LINE], ids=["file", "blank_line"])
def test_reading_resumed_at_any_row_gives_the_same_documents(
    store: Store, name: str, ending: str, read: ReadSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_rows, "DOCUMENT_BYTES", 40)
    source = store(name + ending, PACKERS[ending](CONTENTS[name]))
    sniffed = sniff(source)
    rows = list(positioned_rows(source, sniffed, read))
    assert len(rows) > 5 or (name == "a.txt" and len(rows) > 3)
    for number, row in enumerate(rows, 1):
        rest = [later.found for later in rows[number:] if later.found is not None]
        assert list(read_rows(source, sniffed, read, row.position)) == rest


COLUMNS = [
    Column(name="id", type="number", usable=False),
    Column(name="body", type="text", usable=True),
    Column(name="messages", type="messages", usable=True),
]


def test_the_field_is_the_requested_one_or_text_or_messages() -> None:
    assert resolve_field(COLUMNS, "body") == "body"
    assert resolve_field(COLUMNS, None) == "messages"
    assert resolve_field([*COLUMNS, Column(name="text", type="text", usable=True)], None) == "text"
    assert resolve_field([], None) is None
    with pytest.raises(UnusableDataError, match=r"There is no field 'bdy'. Choose .*: 'body', 'messages'"):
        resolve_field(COLUMNS, "bdy")
    with pytest.raises(
        UnusableDataError, match="field 'id' has the type number, neither text nor chat messages"
    ):
        resolve_field(COLUMNS, "id")
    with pytest.raises(UnusableDataError, match="No field contains text"):
        resolve_field(COLUMNS[:1], None)


def test_columns_are_the_keys_of_the_first_objects(store: Store) -> None:
    content = b'{"id": 1, "body": null}\nbroken\n\n{"body": "x", "chat": [{"role": "a", "content": "b"}], "\\ud800": "x"}'
    source = store("a.jsonl", content)
    found = [(column.name, column.type, column.usable) for column in columns_of(source, sniff(source))]
    assert found == [
        ("id", "number", False),
        ("body", "text", True),
        ("chat", "messages", True),
        ("?", "text", False),
    ]


@pytest.mark.slow(target="faults")
def test_of_very_many_keys_the_first_and_the_requested_one_are_known(store: Store) -> None:
    keys = {f"key {number}": "x" for number in range(MAX_COLUMNS + 5)}
    source = store("a.jsonl", json.dumps({**keys, "text": "found"}).encode())
    columns = columns_of(source, sniff(source))
    assert [column.name for column in columns] == [*list(keys)[:MAX_COLUMNS], "text"]
    assert _read(source) == [(1, "found")]


def test_another_field_is_read_when_it_is_named(store: Store) -> None:
    assert _read(store("a.jsonl", b'{"body": "x", "text": "y"}'), ReadSpec(field="body")) == [(1, "x")]
    assert _read(store("a.csv", b"body,text\nx,y\n"), ReadSpec(field="body")) == [(2, "x")]
    rejected = next(iter(read_rows(s := store("a.jsonl", b"{}"), sniff(s), ReadSpec(field="f" * 200))))
    assert isinstance(rejected, Rejected)
    assert len(rejected.reason) < 255, "as long as the database allows"
