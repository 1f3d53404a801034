"""Uploads: streamed and hashed as they arrive; what is refused leaves nothing behind."""

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import uvicorn
from sqlalchemy import event, func, select, update

from tests.backend.conftest import Site
from trainwright_backend.control import sweep_bytes
from trainwright_backend.core.db import Write, now
from trainwright_backend.core.doomed import DoomedBytes
from trainwright_backend.core.storage import Incoming, LocalStore, Stored
from trainwright_backend.datasets import uploads
from trainwright_backend.datasets.tables import Dataset, DatasetFile, Preparation

GOOD = b'{"text": "a document"}\n'
Files = list[tuple[str, tuple[str, bytes]]]


def one(name: str = "a.jsonl", content: bytes = GOOD) -> Files:
    return [("files", (name, content))]


def bytes_in_store(site: Site) -> list[Path]:
    store: LocalStore = site.app.state.store
    return [path for path in store.root.rglob("*") if path.is_file()]


def test_an_upload_becomes_a_dataset_with_digests_of_what_was_sent(site: Site) -> None:
    prose = b"some prose\n" * 1000
    files = [*one(), ("files", ("folder/b.TXT", prose))]
    answer = site.admin.post(f"{site.path}/datasets", data={"name": "My letters"}, files=files)
    assert answer.status_code == 201
    shown = answer.json()
    assert shown["name"] == "My letters" and shown["created_by"] == "Ada" and shown["id"].startswith("ds_")
    (version,) = shown["versions"]
    assert version["number"] == 1 and version["bytes"] == len(GOOD) + len(prose)
    assert version["files"] == [
        {"name": "a.jsonl", "bytes": len(GOOD), "digest": hashlib.sha256(GOOD).hexdigest()},
        {"name": "b.TXT", "bytes": len(prose), "digest": hashlib.sha256(prose).hexdigest()},
    ]
    assert [preparation["state"] for preparation in version["preparations"]] == ["waiting"]
    assert site.admin.get(f"{site.path}/datasets/{shown['id']}").json() == shown
    with site.app.state.database.read() as session:
        keys = session.scalars(select(DatasetFile.object_key).order_by(DatasetFile.position)).all()
    assert [site.app.state.store.read(key) for key in keys] == [GOOD, prose]


def test_versions_are_added_and_never_change(site: Site, upload: object) -> None:
    assert callable(upload)
    dataset = upload(ready=False)
    path = f"{site.path}/datasets/{dataset['id']}"
    second = site.admin.post(f"{path}/versions", files=one("new.jsonl")).json()
    assert [version["number"] for version in second["versions"]] == [2, 1]
    assert second["versions"][1] == dataset["versions"][0]
    (listed,) = site.admin.get(f"{site.path}/datasets").json()["items"]
    assert [version["number"] for version in listed["versions"]] == [2], "a list shows the newest only"


@pytest.mark.parametrize(
    ("data", "files", "field", "message"),
    [
        ({"name": "x"}, one("a.csv"), "files", "'a.csv' is no file of text"),
        ({"name": "x"}, one("a.jsonl.exe"), "files", "Send .jsonl or .txt"),
        ({"name": "x"}, one("a.txt", b""), "files", "This file is empty"),
        ({"name": "x"}, [*one(), *one()], "files", "Two files have this name"),
        ({"name": "x"}, [*one("x/a.jsonl"), *one("y\\a.jsonl")], "files", "Two files have this name"),
        ({}, one(), "name", "This field is required"),
        ({"name": " "}, one(), "name", "This field is required"),
        ({"name": "<b>"}, one(), "name", "letters, digits"),
        ({"name": "x" * 81}, one(), "name", "Use up to 80"),
        ({"name": "x", "nmae": "y"}, one(), "nmae", "There is no such field"),
        ({"name": "x" * 2000}, one(), "name", "longer than 1024 bytes"),
        ({"name": "x"}, one("a" * 300 + ".txt"), "files", "File names have up to 255"),
        ({"name": "x"}, [("other", ("a.txt", b"x")), ("files", ("", b"x"))], "files", "without a name"),
        ({"name": "x"}, one(".txt/"), "files", "without a name"),
    ],
)
def test_what_is_wrong_is_named_and_leaves_nothing(
    site: Site, data: dict[str, str], files: Files, field: str, message: str
) -> None:
    answer = site.admin.post(f"{site.path}/datasets", data=data, files=files)
    assert answer.status_code == 422, answer.text
    (problem,) = answer.json()["errors"]
    assert problem["field"] == field and message in problem["message"]
    assert bytes_in_store(site) == []
    assert site.admin.get(f"{site.path}/datasets").json()["items"] == []


def test_an_upload_without_files_is_refused(site: Site) -> None:
    body = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nx\r\n--b--\r\n'
    answer = site.admin.post(f"{site.path}/datasets", content=body, headers=form())
    assert answer.json()["errors"][0]["message"].startswith("There is no file in the form")


def test_too_many_files_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_FILES", 3)
    files = [part for number in range(4) for part in one(f"{number}.txt")]
    answer = site.admin.post(f"{site.path}/datasets", data={"name": "x"}, files=files)
    assert "more than 3 files" in answer.json()["errors"][0]["message"]
    assert bytes_in_store(site) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form at all",
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nhalf of it',
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\nx\r\n--b\r\nX',
        b"--b\r\n" + b"X" * 20_000,
        b"--b\r\n\r\nno header\r\n--b--\r\n",
    ],
)
def test_a_broken_form_is_refused_and_leaves_nothing(site: Site, body: bytes) -> None:
    answer = site.admin.post(f"{site.path}/datasets", content=body, headers=form())
    assert answer.status_code == 422, answer.text
    assert bytes_in_store(site) == []


def test_what_is_no_form_is_415(site: Site) -> None:
    assert site.admin.post(f"{site.path}/datasets", json={"name": "x"}).status_code == 415


def test_a_commit_that_fails_leaves_no_bytes(site: Site) -> None:
    def fail(session: Write) -> None:
        raise RuntimeError("the disk is gone")

    event.listen(Write, "before_commit", fail)
    try:
        answer = site.admin.post(f"{site.path}/datasets", data={"name": "x"}, files=one())
    finally:
        event.remove(Write, "before_commit", fail)
    assert answer.status_code == 500
    assert bytes_in_store(site) == []
    with site.app.state.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Dataset)) == 0


def test_an_upload_to_a_dataset_that_is_deleted_meanwhile_leaves_no_bytes(
    site: Site, upload: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(upload)
    dataset = upload(ready=False)
    path = f"{site.path}/datasets/{dataset['id']}"
    finish = uploads._Form.finish

    def delete_first(form: uploads._Form) -> uploads.Upload:
        assert site.admin.delete(path).status_code == 204
        return finish(form)

    monkeypatch.setattr(uploads._Form, "finish", delete_first)
    assert site.admin.post(f"{path}/versions", files=one()).status_code == 404
    sweep_bytes(site.app.state.database, site.app.state.store)
    assert bytes_in_store(site) == []


def test_lists_come_in_pages_newest_first(site: Site) -> None:
    for number in range(5):
        site.admin.post(f"{site.path}/datasets", data={"name": f"set {number}"}, files=one())
    names, cursor = [], None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = site.admin.get(f"{site.path}/datasets", params=query).json()
        names += [dataset["name"] for dataset in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == [f"set {number}" for number in (4, 3, 2, 1, 0)]


def test_deleting_a_dataset_deletes_its_bytes(site: Site, upload: object) -> None:
    assert callable(upload)
    keep, drop = upload("keep"), upload("drop")
    before = len(bytes_in_store(site))
    assert site.admin.delete(f"{site.path}/datasets/{drop['id']}").status_code == 204
    assert len(bytes_in_store(site)) == before, (
        "the request touches no bytes, so it cannot lose its place among them"
    )
    sweep_bytes(site.app.state.database, site.app.state.store)
    assert len(bytes_in_store(site)) == before // 2
    assert site.admin.get(f"{site.path}/datasets/{drop['id']}").status_code == 404
    assert site.admin.get(f"{site.path}/datasets/{keep['id']}").json() == keep
    with site.app.state.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Preparation)) == 1


def test_a_dataset_that_a_run_uses_stays_and_the_error_names_the_run(site: Site, upload: object) -> None:
    assert callable(upload)
    dataset = upload()
    spec = {"name": "my run", "data": {"dataset": dataset["id"]}, "resources": {"device": "cpu"}}
    assert site.admin.post(f"{site.path}/runs", json=spec).status_code == 201
    answer = site.admin.delete(f"{site.path}/datasets/{dataset['id']}")
    assert (answer.status_code, answer.json()["code"]) == (409, "dataset_in_use")
    assert "my run" in answer.json()["detail"]
    assert bytes_in_store(site)


def test_an_upload_that_dies_among_its_files_leaves_nothing_for_good(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = Incoming.finish

    def full(incoming: Incoming) -> Stored:
        if incoming.digest == hashlib.sha256(b"second").hexdigest():
            raise OSError(28, "No space left on device")
        return finish(incoming)

    monkeypatch.setattr(Incoming, "finish", full)
    files = one() + one("b.txt", b"second")
    assert site.admin.post(f"{site.path}/datasets", data={"name": "x"}, files=files).status_code == 500
    database, store = site.app.state.database, site.app.state.store
    assert bytes_in_store(site), "the first file is there, and no row names it"
    sweep_bytes(database, store)
    assert bytes_in_store(site), "an upload has a day"
    with database.write() as session:
        session.execute(update(DoomedBytes).values(next_sweep=now(), last_sweep=now()))
    sweep_bytes(database, store)
    assert bytes_in_store(site) == []


def test_a_finished_upload_is_not_swept(site: Site) -> None:
    site.admin.post(f"{site.path}/datasets", data={"name": "x"}, files=one())
    with site.app.state.database.read() as session:
        assert session.scalars(select(DoomedBytes)).all() == []


def test_memory_stays_flat_however_large_the_upload(site: Site) -> None:
    """300 MB through a real server, in a process whose memory is watched meanwhile."""
    content = b'{"text": "%s"}\n' % (b"x" * 999)
    count = 300_000_000 // len(content)
    with serving(site) as port:
        watcher = Watcher()
        with watcher:
            status = send_large(site, port, content, count)
    assert status == 201
    assert watcher.most - watcher.least < 64 * 2**20
    with site.app.state.database.read() as session:
        assert session.scalars(select(DatasetFile.bytes)).one() == count * len(content)


class Watcher:
    """The least and the most resident memory of this process while it is entered, in bytes."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.least = self.most = self._process.memory_info().rss

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, self._process.memory_info().rss)


class serving:  # noqa: N801 (reads as a verb)
    """The site's application on a real port."""

    def __init__(self, site: Site) -> None:
        config = uvicorn.Config(site.app, port=0, lifespan="off", log_config=None, access_log=False)
        self._server = uvicorn.Server(config)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def __enter__(self) -> int:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        port: int = self._socket.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


def send_large(site: Site, port: int, line: bytes, count: int) -> int:
    """POST a form with one large file by hand, so that the sender's memory is flat too; returns the status."""
    head = (
        b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nlarge\r\n'
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.jsonl"\r\n\r\n'
    )
    tail = b"\r\n--b--\r\n"
    block = line * 1000
    key = site.admin.headers["Authorization"]
    request = (
        f"POST {site.path}/datasets HTTP/1.1\r\nHost: localhost:{port}\r\nAuthorization: {key}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nConnection: close\r\n"
        f"Content-Length: {len(head) + len(line) * count + len(tail)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request.encode() + head)
        for part in blocks(block, line, count):
            connection.sendall(part)
        connection.sendall(tail)
        answer = connection.recv(65_536)
    return int(answer.split()[1])


def blocks(block: bytes, line: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count // 1000):
        yield block
    yield line * (count % 1000)


def form() -> dict[str, str]:
    return {"Content-Type": "multipart/form-data; boundary=b"}
