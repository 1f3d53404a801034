"""A look at uploads: what the files hold, by a child process that nothing in them can turn against the platform."""

import io
import os
import time
from contextlib import suppress
from threading import BoundedSemaphore, Event, Thread

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.backend.datasets.desk import Desk, lines
from trainwright_backend.datasets import previews


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


def test_columns_and_the_field_that_all_files_agree_on_are_filled_in(desk: Desk) -> None:
    first = desk.send("a.jsonl", lines({"id": 7, "text": "one"}, {"id": 8, "txt": "two"}))
    second = desk.send("b.csv", b"text,stars\nfine,5\n")
    seen = desk.post("uploads/preview", {"uploads": [first, second]}).json()
    assert seen["recipe"]["read"]["field"] == "text"
    one, two = seen["files"]
    assert (one["upload"], one["name"], one["format"], one["field"]) == (first, "a.jsonl", "jsonl", "text")
    assert {column["name"]: column["usable"] for column in one["columns"]} == {
        "id": False,
        "text": True,
        "txt": True,
    }
    assert one["documents"] == ["one"] and [(row["line"], row["file"]) for row in one["rejected"]] == [
        (2, "a.jsonl")
    ]
    assert two["documents"] == ["fine"]


def test_files_that_disagree_leave_the_field_open(desk: Desk) -> None:
    chat = [{"role": "user", "content": "hi"}]
    uploads = [desk.send("a.jsonl", lines("one")), desk.send("b.jsonl", lines({"messages": chat}))]
    seen = desk.post("uploads/preview", {"uploads": uploads}).json()
    assert seen["recipe"]["read"]["field"] is None
    assert [file["field"] for file in seen["files"]] == ["text", "messages"]


def test_twenty_documents_and_twenty_files_are_looked_at(desk: Desk) -> None:
    uploads = [desk.send(f"{number:02d}.jsonl", lines(*map(str, range(50)))) for number in range(22)]
    files = desk.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert len(files) == 22 and len(files[19]["documents"]) == 20 and files[19]["problem"] is None
    assert files[20]["problem"] == "Not looked at: a preview opens the first 20 files."


def test_of_a_wide_table_the_first_columns_are_shown_and_the_field_is_found(desk: Desk) -> None:
    wide = desk.send(
        "wide.jsonl", lines({**{f"key {number}": number for number in range(12_000)}, "text": "x"})
    )
    [file] = desk.post("uploads/preview", {"uploads": [wide]}).json()["files"]
    assert (len(file["columns"]), file["field"], file["documents"]) == (1_000, "text", ["x"])


def test_a_preview_waits_its_turn_or_is_told_to_ask_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = desk.send("a.jsonl", lines("fine"))
    monkeypatch.setattr(previews, "LOOKING", BoundedSemaphore(1))
    monkeypatch.setattr(previews, "WAIT_SECONDS", 0.05)
    with previews.LOOKING:
        answer = desk.post("uploads/preview", {"uploads": [upload]})
        assert (answer.status_code, answer.json()["code"]) == (503, "previews_busy")
        assert int(answer.headers["retry-after"]) > 0
    assert desk.post("uploads/preview", {"uploads": [upload]}).status_code == 200
    monkeypatch.setattr(previews, "ASKING", BoundedSemaphore(1))
    with previews.ASKING:
        assert desk.post("uploads/preview", {"uploads": [upload]}).status_code == 503


def test_an_unfinished_upload_is_named(desk: Desk) -> None:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "10", "Upload-Metadata": "filename YS50eHQ="}
    made = desk.site.admin.post(f"{desk.site.path}/uploads", headers=headers)
    upload = made.headers["location"].rsplit("/", 1)[-1]
    field, message = desk.problem(desk.post("uploads/preview", {"uploads": [upload]}))
    assert field == "uploads" and "0 of 10 bytes" in message


def test_a_file_that_takes_too_long_is_told_so_and_the_next_one_is_looked_at(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe never ends and never answers: the child that opens it hangs, and is killed."""
    uploads = [desk.send(name, lines(name)) for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    monkeypatch.setattr(previews, "SECONDS", 3.0)
    keys = [key for key in desk.stored() if "/files/" in key]
    stuck = next(desk.path_of(key) for key in keys if b"b.jsonl" in desk.path_of(key).read_bytes())
    stuck.unlink()
    os.mkfifo(stuck)
    started = time.monotonic()
    files = desk.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert time.monotonic() - started < 20
    assert [file["documents"] for file in files] == [["a.jsonl"], [], ["c.jsonl"]]
    assert "b.jsonl took longer than 3 s" in files[1]["problem"]


def readers(path: str) -> list[psutil.Process]:
    """Processes that take apart the Parquet file at ``path``."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "trainwright.prepare.parquet_process" in process.cmdline() and path in {
                file.path for file in process.open_files()
            }:
                found.append(process)
    return found


def test_a_look_that_is_ended_leaves_no_process_behind(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many pages as rows take the reader long enough to be found, and one that is stopped never ends by itself."""
    sink = io.BytesIO()
    small = {"data_page_size": 1, "write_batch_size": 1, "write_statistics": False}
    table = pa.table({"text": ["a"] * 900_000})
    pq.write_table(table, sink, compression="none", use_dictionary=False, **small)
    upload = desk.send("pages.parquet", sink.getvalue())
    path = str(next(desk.path_of(key) for key in desk.stored() if "/files/" in key))
    seen: list[int] = []
    over = Event()

    def watch() -> None:
        while not over.is_set():
            for process in readers(path):
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
                    seen.append(process.pid)

    thread = Thread(target=watch)
    thread.start()
    monkeypatch.setattr(previews, "SECONDS", 6.0)
    try:
        [file] = desk.post("uploads/preview", {"uploads": [upload]}).json()["files"]
    finally:
        over.set()
        thread.join()
    assert "took longer" in file["problem"] and seen and not readers(path)


def test_an_error_of_the_look_is_not_taken_for_too_little_memory(desk: Desk) -> None:
    upload = desk.send("a.jsonl", lines("gone"))
    next(desk.path_of(key) for key in desk.stored() if "/files/" in key).unlink()
    [file] = desk.post("uploads/preview", {"uploads": [upload]}).json()["files"]
    assert "memory" not in file["problem"] and "ended the program" in file["problem"]


def test_a_file_that_needs_too_much_memory_is_told_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """160 MiB of text in a file of kilobytes, for a process that may have 60 MiB beyond what it needs to start."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * (8 * 2**20 - 1)] * 20}), sink, compression="zstd")
    uploads = [desk.send("bomb.parquet", sink.getvalue()), desk.send("b.jsonl", lines("fine"))]
    monkeypatch.setattr(previews, "MEMORY_BYTES", 460 * 2**20)
    bomb, fine = desk.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert fine["documents"] == ["fine"]
    assert "bomb.parquet" in bomb["problem"]
    monkeypatch.undo()
    bomb, _ = desk.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert bomb["problem"] is None and len(bomb["documents"]) >= 1, "with all its memory it is no bomb"


def test_a_file_that_kills_the_child_is_told_so_and_the_next_one_is_looked_at(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a crash in a library would: here by a limit on memory in which not even Python starts to read."""
    uploads = [desk.send(name, lines(name)) for name in ("a.jsonl", "b.jsonl")]
    monkeypatch.setattr(previews, "MEMORY_BYTES", 2**20)
    files = desk.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert all(file["name"] in file["problem"] and file["documents"] == [] for file in files)
