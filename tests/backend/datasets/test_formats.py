"""Every file format over HTTP: the documents of valid files, and the errors of broken ones."""

import csv
import gzip
import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.backend.datasets.dataset_editor import DatasetEditor, Json, lines

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
CHAT_TEXT = "<|user|>\nhi\n<|assistant|>\nhello\n"


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


def parquet(**columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def table(rows: list[list[str]]) -> bytes:
    sink = io.StringIO()
    csv.writer(sink).writerows(rows)
    return sink.getvalue().encode()


GOOD: dict[str, tuple[str, bytes, Json, list[str]]] = {
    "text": ("a.txt", b"one\n\ntwo\n", {}, ["one\n\ntwo\n"]),
    "text by blank line": ("a.txt", b"one\n\n\ntwo\n", {"text_documents": "blank_line"}, ["one", "two"]),
    "json lines": ("a.jsonl", lines("one", "two"), {}, ["one", "two"]),
    "json lines of chats": ("a.jsonl", lines({"messages": CHAT}), {}, [CHAT_TEXT]),
    "another field": ("a.jsonl", lines({"body": "one", "text": "no"}), {"field": "body"}, ["one"]),
    "parquet": ("a.parquet", parquet(id=[1, 2], text=["one", "two"]), {}, ["one", "two"]),
    "csv": ("a.csv", table([["id", "text"], ["1", "one"], ["2", "two\nlines"]]), {}, ["one", "two\nlines"]),
    "gzip": ("a.jsonl.gz", gzip.compress(lines("one", "two")), {}, ["one", "two"]),
    "zstandard": ("a.csv.zst", zstandard.compress(table([["text"], ["one"], ["two"]])), {}, ["one", "two"]),
    "a name without a known suffix": ("data", lines("one"), {}, ["one"]),
}

BROKEN: dict[str, tuple[str, bytes, Json, str]] = {
    "cut gzip": ("a.jsonl.gz", gzip.compress(lines(*map(str, range(999))))[:-20], {}, "a.jsonl.gz"),
    "gzip of UTF-16": ("a.txt.gz", gzip.compress("one".encode("utf-16")), {}, "UTF-8"),
    "no such column": ("a.csv", table([["id", "body"], ["1", "one"]]), {"field": "text"}, "body"),
    "a bomb": ("a.txt.gz", gzip.compress(bytes(2**20)) * 400, {}, "a.txt.gz"),
}

WRONG_TYPES: dict[str, tuple[bytes, str]] = {
    "a.jsonl.gz": (lines("one"), "a.jsonl.gz has the name of gzip data"),
    "a.parquet": (lines("one"), "a.parquet has the name of a .parquet file"),
    "a.txt": ("one".encode("utf-16"), "a.txt is text in UTF-16. Save it as UTF-8."),
    "a.csv": (b"PK\x03\x04" + bytes(200_000), "a.csv is a ZIP archive"),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_valid_file_is_parsed_into_its_documents(editor: DatasetEditor, kind: str) -> None:
    name, content, read, texts = GOOD[kind]
    upload = editor.send(name, content)
    (seen,) = editor.post("uploads/preview", {"uploads": [upload], "curation": {"read": read}}).json()[
        "files"
    ]
    assert (seen["problem"], seen["documents"], seen["rejected"]) == (None, texts, [])
    response = editor.post("datasets", {"name": "x", "uploads": [upload], "curation": {"read": read}})
    made = editor.ready(response.json())
    assert made["versions"][0]["error"] is None
    assert editor.texts(made) == texts
    assert made["versions"][0]["files"][0]["format"] == seen["format"]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_fails_its_version_with_its_reason(editor: DatasetEditor, kind: str) -> None:
    name, content, read, sentence = BROKEN[kind]
    upload = editor.send(name, content)
    (seen,) = editor.post("uploads/preview", {"uploads": [upload], "curation": {"read": read}}).json()[
        "files"
    ]
    response = editor.post("datasets", {"name": "x", "uploads": [upload], "curation": {"read": read}})
    (version,) = editor.ready(response.json())["versions"]
    assert version["state"] == "failed" and sentence in version["error"]
    assert kind in ("a bomb", "cut gzip") or version["error"].endswith(seen["problem"]), (
        "the preview says the same"
    )


def test_files_of_wrong_types_are_reported_and_create_nothing(editor: DatasetEditor) -> None:
    wrong = [editor.send(name, content) for name, (content, _) in WRONG_TYPES.items()]
    good = editor.send("good.parquet", parquet(text=["one", " ".join(map(str, range(20_000)))]))
    refused = editor.post("datasets", {"name": "x", "uploads": [good, *wrong]})
    assert refused.status_code == 422
    problems = {problem["value"]: problem["message"] for problem in refused.json()["errors"]}
    assert problems.keys() == WRONG_TYPES.keys()
    assert all(problems[name].startswith(sentence) for name, (_, sentence) in WRONG_TYPES.items())
    assert editor.get("datasets")["items"] == []

    made = editor.ready(editor.post("datasets", {"name": "x", "uploads": [good]}).json())
    response = editor.post(f"datasets/{made['id']}/versions", {"uploads": wrong[:1], "keep_files": True})
    assert editor.problem(response) == ("uploads", problems["a.jsonl.gz"])
    assert [version["number"] for version in editor.show(made)["versions"]] == [1]


def test_rejected_rows_are_listed_with_their_lines_across_files(editor: DatasetEditor) -> None:
    rows: list[object] = [f"document {number}" for number in range(300)]
    rows[9], rows[149] = {"txt": "x"}, {"text": 7}
    broken = lines(*rows).splitlines(keepends=True)
    broken[249] = b"\xff\xfe\n"
    other = lines("fine", {"text": ""}, *("fine" for _ in range(100)))
    made = editor.make("bad", {"rejected_limit": 0.1}, **{"a.jsonl": b"".join(broken), "b.jsonl": other})
    assert [(file, line) for file, line, _ in editor.rejected(made)] == [
        ("a.jsonl", 10),
        ("a.jsonl", 150),
        ("a.jsonl", 250),
        ("b.jsonl", 2),
    ]
    reasons = [reason for _, _, reason in editor.rejected(made)]
    assert reasons[0] == "has no field 'text'" and "iconv -f latin1 -t utf-8" in reasons[2]
    files = made["versions"][0]["files"]
    assert [(file["documents"], file["rejected"]) for file in files] == [(297, 3), (101, 1)]
    assert made["versions"][0]["preparations"][0]["rejected"] == 4


def test_the_list_of_rejected_rows_is_limited_to_a_thousand_but_their_count_is_not(
    editor: DatasetEditor,
) -> None:
    made = editor.make(
        "bad", {"rejected_limit": 1.0}, **{"a.jsonl": b"bad\n" * 3000 + lines(*map(str, range(20)))}
    )
    assert made["versions"][0]["statistics"]["rejected"] == 3000
    assert [line for _, line, _ in editor.rejected(made)] == list(range(1, 1001))


def test_documents_are_paged_with_the_rule_that_drops_them(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [f"document {number:03d}" for number in range(60)]
    many[5] = many[4]
    many[7] = "x"
    curation = {"drop_duplicates": True, "rules": {"min_characters": 2}}
    made = editor.make("pages", curation, **{"a.jsonl": lines(*many[:40]), "b.jsonl": lines(*many[40:])})
    path = f"datasets/{made['id']}/versions/1/documents"
    found: list[Json] = []
    cursor = None
    while True:
        page = editor.get(path, limit=7, **({"cursor": cursor} if cursor else {}))
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert [(item["number"], item["text"]) for item in found] == list(enumerate(many))
    assert [item["number"] for item in found if not item["kept"]] == [5, 7]
    assert (found[5]["dropped_by"], found[7]["dropped_by"]) == ("duplicate", "min_characters")
    assert (found[41]["file"], found[41]["line"]) == ("b.jsonl", 2)
    assert made["versions"][0]["statistics"]["dropped"] == {"duplicate": 1, "min_characters": 1}
    refused = editor.site.admin.get(f"{editor.site.path}/{path}", params={"cursor": "x"})
    assert editor.problem(refused)[0] == "cursor"


def test_documents_of_a_version_that_is_not_ready_are_a_conflict(editor: DatasetEditor) -> None:
    made = editor.make(ready=False, **{"a.jsonl": lines("one")})
    response = editor.site.admin.get(f"{editor.site.path}/datasets/{made['id']}/versions/1/documents")
    assert (response.status_code, response.json()["code"]) == (409, "version_not_ready")


def test_a_long_document_is_truncated(editor: DatasetEditor) -> None:
    made = editor.make(**{"a.jsonl": json.dumps({"text": "word " * 5000}).encode()})
    (document,) = editor.documents(made)
    assert (document["characters"], len(document["text"])) == (25_000, 2_000)
