"""One request at a time writes to an upload, in one process or several; idle and refused ones lose nothing."""

import asyncio
import errno
import hashlib
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest
from sqlalchemy import select

from tests.backend.conftest import Site, only_in_bucket
from tests.backend.uploads.conftest import BYTES, TUS, Tus
from tests.backend.uploads.faults import Server
from tests.live import eventually
from trainwright_backend.uploads import receiver, request_body
from trainwright_backend.uploads.tables import StoredFile

CONTENT = bytes(range(250)) * 400
FIRST = 50_000
"""More than a block, so that a writing request is visible on disk."""


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """These tests do not depend on the database."""
    return sqlite_url


@pytest.fixture
def connect(site: Site) -> Iterator[Callable[[Server], Tus]]:
    """Clients of server processes."""
    opened: list[httpx.Client] = []

    def open_client(server: Server) -> Tus:
        headers = {"Authorization": site.admin.headers["Authorization"]}
        opened.append(httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers, timeout=30))
        return Tus(opened[-1], f"{site.path}/uploads")

    yield open_client
    for client in opened:
        client.close()


class Halting:
    """A request whose client pauses in the middle of the body and keeps the connection open."""

    def __init__(self, site: Site, server: Server, url: str, body: bytes) -> None:
        headers = BYTES | {"Upload-Offset": "0", "Content-Length": str(len(CONTENT)), "Host": "localhost"}
        headers["Authorization"] = site.admin.headers["Authorization"]
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._connection.sendall(f"PATCH {url} HTTP/1.1\r\n{lines}\r\n".encode() + body)

    def __enter__(self) -> "Halting":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def go_on(self, body: bytes) -> None:
        """Send the rest."""
        self._connection.sendall(body)

    def response(self) -> str:
        """The server's response."""
        heard = b""
        while b'"errors"' not in heard and (data := self._connection.recv(65_536)):
            heard += data
        return heard.decode()


def writes(site: Site) -> None:
    """Wait until a request is writing to the only upload."""
    store = site.app.state.store

    def has_bytes() -> bool:
        return any(store.partial_path(upload_id).stat().st_size for upload_id in store.list_partials())

    eventually(has_bytes, "bytes of the first request lie on the disk")


def finish(tus: Tus, url: str) -> None:
    """Send the rest, from the server's offset."""
    offset = tus.offset(url)
    assert 0 < offset <= FIRST
    rest = CONTENT[offset:]
    eventually(
        lambda: tus.add(url, offset, rest).status_code == 204, "the previous request has released the file"
    )
    (shown,) = tus.client.get(tus.path).json()
    assert shown["digest"] == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.slow(target="databases")
def test_an_idle_connection_is_closed_and_its_bytes_are_kept(
    site: Site, connect: Callable[[Server], Tus]
) -> None:
    with Server(site.app.state.settings, idle_seconds=0.3) as server:
        tus = connect(server)
        url = tus.begin(len(CONTENT))
        with Halting(site, server, url, CONTENT[:FIRST]) as halting:
            response = halting.response()
        assert response.startswith("HTTP/1.1 408") and "upload_idle" in response
        assert "onnection: close" in response
        assert tus.offset(url) == FIRST
        finish(tus, url)


@only_in_bucket
def test_two_processes_share_an_upload_in_a_bucket_and_never_mix_their_bytes(
    site: Site, connect: Callable[[Server], Tus], tus: Tus
) -> None:
    with Server(site.app.state.settings) as server:
        other = connect(server)
        url = tus.begin(len(CONTENT))
        with Halting(site, server, url, CONTENT[:FIRST]):
            eventually(lambda: other.offset(url) == 0, "the other process answers")
            assert tus.add(url, 0, CONTENT[: FIRST // 2]).status_code == 204
            assert other.offset(url) == FIRST // 2
            assert other.add(url, FIRST // 2, CONTENT[FIRST // 2 : FIRST]).status_code == 204
        assert tus.add(url, 0, CONTENT).json()["code"] == "wrong_offset"
        assert tus.add(url, FIRST, CONTENT[FIRST:]).status_code == 204
    (shown,) = tus.client.get(tus.path).json()
    assert shown["digest"] == hashlib.sha256(CONTENT).hexdigest()
    with site.app.state.database.read() as session:
        key = session.scalars(select(StoredFile.object_key)).one()
    assert site.app.state.store.read(key) == CONTENT
    assert site.app.state.store.list_partials() == []


def test_a_newer_request_ends_the_previous_one(site: Site, connect: Callable[[Server], Tus]) -> None:
    with Server(site.app.state.settings) as server:
        tus = connect(server)
        url = tus.begin(len(CONTENT))
        with Halting(site, server, url, CONTENT[:FIRST]) as halting:
            writes(site)
            response = tus.add(url, 0, CONTENT)
            assert (response.status_code, response.json()["code"]) == (409, "wrong_offset")
            assert 0 < response.json()["offset"] <= FIRST, "the first request's bytes are kept"
            assert "upload_taken_over" in halting.response()
        finish(tus, url)


@pytest.mark.slow(target="databases")
def test_deleting_an_upload_ends_the_request_that_writes_to_it(
    site: Site, connect: Callable[[Server], Tus], exact: Callable[[], bool]
) -> None:
    with Server(site.app.state.settings) as server:
        tus = connect(server)
        url = tus.begin(len(CONTENT))
        with Halting(site, server, url, CONTENT[:FIRST]) as halting:
            writes(site)
            assert tus.drop(url).status_code == 204
            assert halting.response().startswith(("HTTP/1.1 409", "HTTP/1.1 404"))
    assert exact() and site.app.state.store.list_partials() == []


def test_a_request_of_another_team_interrupts_nothing(site: Site, connect: Callable[[Server], Tus]) -> None:
    key = {"Authorization": site.other_team("globex").headers["Authorization"]}
    with Server(site.app.state.settings) as server:
        tus = connect(server)
        url = tus.begin(len(CONTENT))
        theirs = url.replace("/acme/", "/globex/")
        with Halting(site, server, url, CONTENT[:FIRST]) as halting:
            writes(site)
            headers = BYTES | {"Upload-Offset": "0"} | key
            overridden = headers | {"X-HTTP-Method-Override": "PATCH"}
            assert tus.client.patch(theirs, content=b"x", headers=headers).status_code == 404
            assert tus.client.post(theirs, content=b"x", headers=overridden).status_code == 404
            assert tus.client.delete(theirs, headers=TUS | key).status_code == 404
            halting.go_on(CONTENT[FIRST:])
            eventually(lambda: tus.offset(url) == len(CONTENT), "the team's own request continued")
    (shown,) = site.admin.get(tus.path).json()
    assert shown["digest"] == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.slow(target="databases")
def test_another_process_waits_until_the_writer_has_finished(
    site: Site, connect: Callable[[Server], Tus]
) -> None:
    with Server(site.app.state.settings) as one, Server(site.app.state.settings) as two:
        first, second = connect(one), connect(two)
        url = first.begin(len(CONTENT))
        with Halting(site, one, url, CONTENT[:FIRST]):
            writes(site)
            response = second.add(url, 0, b"")
            assert (response.status_code, response.headers["Retry-After"]) == (423, "2")
        eventually(lambda: second.offset(url) > 0, "the first connection's end makes its bytes safe")
        finish(second, url)


def test_an_upload_continues_when_the_disk_has_space_again(
    tus: Tus, monkeypatch: pytest.MonkeyPatch, exact: Callable[[], bool]
) -> None:
    url = tus.begin(len(CONTENT))
    assert tus.add(url, 0, CONTENT[:400]).status_code == 204

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        response = tus.add(url, 400, CONTENT[400:])
    assert (response.status_code, response.json()["code"]) == (507, "disk_full")
    assert tus.offset(url) == 400 and exact()
    assert tus.add(url, 400, CONTENT[400:]).status_code == 204
    (shown,) = tus.client.get(tus.path).json()
    assert shown["complete"]


def test_after_a_failed_write_the_response_waits_for_the_save_in_progress(
    site: Site, tus: Tus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the row could advance beyond bytes that the next request truncates."""
    url = tus.begin(len(CONTENT))
    has_failed = threading.Event()
    write, sync = os.pwrite, os.fdatasync

    def write_little(handle: int, data: bytes, at: int) -> int:
        if at < FIRST:
            return write(handle, data, at)
        has_failed.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    def sync_slowly(handle: int) -> None:
        assert has_failed.wait(30)
        time.sleep(0.2)  # a response that does not wait would be sent by now
        sync(handle)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(CONTENT), FIRST // 5):
            yield CONTENT[at : at + FIRST // 5]

    async def send() -> httpx.Response:
        headers = BYTES | {"Upload-Offset": "0", "Authorization": site.admin.headers["Authorization"]}
        transport = httpx.ASGITransport(site.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.patch(url, content=pieces(), headers=headers)

    with monkeypatch.context() as patched:
        patched.setattr(request_body, "BLOCK_BYTES", FIRST // 5)
        patched.setattr(receiver, "SAVE_BYTES", FIRST // 5 * 4)
        patched.setattr(os, "pwrite", write_little)
        patched.setattr(os, "fdatasync", sync_slowly)
        response = asyncio.run(send())
    assert (response.status_code, response.json()["code"]) == (507, "disk_full")
    offset = tus.offset(url)
    assert offset == FIRST // 5 * 4
    assert tus.add(url, offset, CONTENT[offset:]).status_code == 204
    (shown,) = tus.client.get(tus.path).json()
    assert shown["digest"] == hashlib.sha256(CONTENT).hexdigest()
