"""Previews of uploads: a child process reads the files, so hostile files cannot harm the platform."""

import io
import os
import time
from contextlib import suppress
from threading import BoundedSemaphore, Event, Thread

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.backend.datasets.dataset_editor import DatasetEditor, lines
from trainwright_backend.datasets import previews


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


def test_columns_and_the_common_field_of_all_files_are_filled_in(editor: DatasetEditor) -> None:
    first = editor.send("a.jsonl", lines({"id": 7, "text": "one"}, {"id": 8, "txt": "two"}))
    second = editor.send("b.csv", b"text,stars\nfine,5\n")
    seen = editor.post("uploads/preview", {"uploads": [first, second]}).json()
    assert seen["curation"]["read"]["field"] == "text"
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


def test_files_with_different_fields_leave_the_field_empty(editor: DatasetEditor) -> None:
    chat = [{"role": "user", "content": "hi"}]
    uploads = [editor.send("a.jsonl", lines("one")), editor.send("b.jsonl", lines({"messages": chat}))]
    seen = editor.post("uploads/preview", {"uploads": uploads}).json()
    assert seen["curation"]["read"]["field"] is None
    assert [file["field"] for file in seen["files"]] == ["text", "messages"]


@pytest.mark.slow(target="databases")
def test_a_preview_is_limited_to_twenty_documents_and_twenty_files(editor: DatasetEditor) -> None:
    uploads = [editor.send(f"{number:02d}.jsonl", lines(*map(str, range(50)))) for number in range(22)]
    files = editor.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert len(files) == 22 and len(files[19]["documents"]) == 20 and files[19]["problem"] is None
    assert files[20]["problem"] == "Not opened: a preview opens the first 20 files."


def test_a_wide_table_shows_its_first_columns_and_its_field_is_found(editor: DatasetEditor) -> None:
    wide = editor.send(
        "wide.jsonl", lines({**{f"key {number}": number for number in range(12_000)}, "text": "x"})
    )
    [file] = editor.post("uploads/preview", {"uploads": [wide]}).json()["files"]
    assert (len(file["columns"]), file["field"], file["documents"]) == (1_000, "text", ["x"])


def test_a_preview_waits_for_its_turn_or_is_told_to_retry(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = editor.send("a.jsonl", lines("fine"))
    monkeypatch.setattr(previews, "RUNNING_PREVIEWS", BoundedSemaphore(1))
    monkeypatch.setattr(previews, "WAIT_SECONDS", 0.05)
    with previews.RUNNING_PREVIEWS:
        response = editor.post("uploads/preview", {"uploads": [upload]})
        assert (response.status_code, response.json()["code"]) == (503, "previews_busy")
        assert int(response.headers["retry-after"]) > 0
    assert editor.post("uploads/preview", {"uploads": [upload]}).status_code == 200
    monkeypatch.setattr(previews, "PENDING_PREVIEWS", BoundedSemaphore(1))
    with previews.PENDING_PREVIEWS:
        assert editor.post("uploads/preview", {"uploads": [upload]}).status_code == 503


def test_an_unfinished_upload_is_named(editor: DatasetEditor) -> None:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "10", "Upload-Metadata": "filename YS50eHQ="}
    made = editor.site.admin.post(f"{editor.site.path}/uploads", headers=headers)
    upload = made.headers["location"].rsplit("/", 1)[-1]
    field, message = editor.problem(editor.post("uploads/preview", {"uploads": [upload]}))
    assert field == "uploads" and "0 of 10 bytes" in message


@pytest.mark.slow(target="databases")
def test_a_slow_file_is_reported_and_the_next_one_is_sampled(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe has no end: the child that opens it hangs, and is killed."""
    uploads = [editor.send(name, lines(name)) for name in ("a.jsonl", "b.jsonl", "c.jsonl")]
    monkeypatch.setattr(previews, "CHILD_SECONDS", 3.0)
    keys = [key for key in editor.stored() if "/files/" in key]
    stuck = next(editor.path_of(key) for key in keys if b"b.jsonl" in editor.path_of(key).read_bytes())
    stuck.unlink()
    os.mkfifo(stuck)
    started = time.monotonic()
    files = editor.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert time.monotonic() - started < 20
    assert [file["documents"] for file in files] == [["a.jsonl"], [], ["c.jsonl"]]
    assert "b.jsonl took longer than 3 s" in files[1]["problem"]


def readers(path: str) -> list[psutil.Process]:
    """Processes that read the Parquet file at ``path``."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if "trainwright.prepare.parquet_process" in process.cmdline() and path in {
                file.path for file in process.open_files()
            }:
                found.append(process)
    return found


@pytest.mark.slow(target="databases")
def test_a_killed_preview_leaves_no_process_behind(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with one page per row keeps the reader busy long enough to be observed."""
    sink = io.BytesIO()
    small = {"data_page_size": 1, "write_batch_size": 1, "write_statistics": False}
    table = pa.table({"text": ["a"] * 900_000})
    pq.write_table(table, sink, compression="none", use_dictionary=False, **small)
    upload = editor.send("pages.parquet", sink.getvalue())
    path = str(next(editor.path_of(key) for key in editor.stored() if "/files/" in key))
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
    monkeypatch.setattr(previews, "CHILD_SECONDS", 6.0)
    try:
        [file] = editor.post("uploads/preview", {"uploads": [upload]}).json()["files"]
    finally:
        over.set()
        thread.join()
    assert "took longer" in file["problem"] and seen and not readers(path)


def test_a_crash_is_not_reported_as_too_little_memory(editor: DatasetEditor) -> None:
    upload = editor.send("a.jsonl", lines("gone"))
    next(editor.path_of(key) for key in editor.stored() if "/files/" in key).unlink()
    [file] = editor.post("uploads/preview", {"uploads": [upload]}).json()["files"]
    assert "memory" not in file["problem"] and "crashed the reader" in file["problem"]


@pytest.mark.slow(target="databases")
def test_a_file_that_needs_too_much_memory_is_reported(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """160 MiB of text in a file of a few kilobytes, for a process with 60 MiB more than it needs to start."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": ["x" * (8 * 2**20 - 1)] * 20}), sink, compression="zstd")
    uploads = [editor.send("bomb.parquet", sink.getvalue()), editor.send("b.jsonl", lines("fine"))]
    monkeypatch.setattr(previews, "MEMORY_BYTES", 460 * 2**20)
    bomb, fine = editor.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert fine["documents"] == ["fine"]
    assert "bomb.parquet" in bomb["problem"]
    monkeypatch.undo()
    bomb, _ = editor.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert bomb["problem"] is None and len(bomb["documents"]) >= 1, "with enough memory the file is accepted"


def test_a_file_that_crashes_the_child_is_reported_and_the_next_one_is_sampled(
    editor: DatasetEditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a crash in a library by a memory limit that is too low even for Python."""
    uploads = [editor.send(name, lines(name)) for name in ("a.jsonl", "b.jsonl")]
    monkeypatch.setattr(previews, "MEMORY_BYTES", 2**20)
    files = editor.post("uploads/preview", {"uploads": uploads}).json()["files"]
    assert all(file["name"] in file["problem"] and file["documents"] == [] for file in files)
