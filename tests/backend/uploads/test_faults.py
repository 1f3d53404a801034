"""Row F18: uploads survive lost connections, a killed server, wrong offsets, too many bytes and two writers."""

import hashlib
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import httpx
import pytest
from sqlalchemy import select

from tests.backend.conftest import Site, both_stores
from tests.backend.uploads.conftest import Tus, storage_is_exact
from tests.backend.uploads.faults import SMALL_BLOCK, Proxy, Server
from tests.faults.rows import FaultRow
from trainwright_backend.core.ids import parse_id
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.object_store import UploadContent
from trainwright_backend.uploads import receiver
from trainwright_backend.uploads.partial_file import PartialFile
from trainwright_backend.uploads.receiver import sweep_partials
from trainwright_backend.uploads.request_body import UploadRequest
from trainwright_backend.uploads.tables import StoredFile, Upload

if TYPE_CHECKING:
    from hashlib import _Hash

SEED = 18
KILLS_EVERY = 5
MAX_BYTES = 600_000
CONTROLS = 20
"""Uploads to a server with a defect, which few of them meet."""


@pytest.fixture
def server(site: Site) -> Iterator[Server]:
    with Server(site.app.state.settings) as running:
        yield running


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as running:
        yield running


@pytest.fixture
def client(site: Site, proxy: Proxy) -> Iterator[Tus]:
    headers = {"Authorization": site.admin.headers["Authorization"], "Host": "localhost"}
    with httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", headers=headers, timeout=30) as http:
        yield Tus(http, f"{site.path}/uploads")


def persistently(call: object, *args: object) -> object:
    """The result of a call over a connection that may be cut."""
    assert callable(call)
    while True:
        with suppress(httpx.TransportError):
            return call(*args)


def upload_id(url: str) -> UUID:
    return parse_id("up", url.rsplit("/", 1)[-1])


def stored_digest(site: Site, url: str) -> str | None:
    """The digest of a complete upload."""
    with site.app.state.database.read() as session:
        stored = select(StoredFile.digest).join(Upload, Upload.stored_file_id == StoredFile.id)
        digest: str | None = session.scalar(stored.where(Upload.id == upload_id(url)))
    return digest


@both_stores
@pytest.mark.both_databases
@pytest.mark.fault_row(name="F18", trials=25, long=50)
def test_bytes_arrive_intact_through_cuts_kills_wrong_offsets_and_two_writers(
    row: FaultRow,
    site: Site,
    server: Server,
    proxy: Proxy,
    client: Tus,
    tus: Tus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    print(f"seed {SEED}")
    choose = random.Random(SEED)
    for number in range(row.count):
        content = choose.randbytes(choose.randint(1, MAX_BYTES))
        is_kill, cuts = number % KILLS_EVERY == 0, proxy.cuts
        with row.trial(f"upload {number}, {'kill' if is_kill else 'cut'}"):
            proxy.cut_after(choose.randint(1, len(content) + 2_000), server.kill if is_kill else lambda: None)
            check_arrives(client, site, content, choose)
            if proxy.cuts > cuts:
                row.recovered(proxy.cut_at)
    assert proxy.cuts >= row.count * 0.6, "most uploads were interrupted"
    for digest, content in contents(site):
        assert hashlib.sha256(content).hexdigest() == digest
    sweep_partials(site.app.state.database, site.app.state.store)
    assert len(site.app.state.store.list_partials()) == unfinished(site)
    with row.control(), monkeypatch.context() as patch:
        patch.setattr(receiver, "PartialFile", partial_file_at_any_offset)
        for _ in range(CONTROLS):
            check_arrives(tus, site, choose.randbytes(MAX_BYTES), choose)


def check_arrives(client: Tus, site: Site, content: bytes, choose: random.Random) -> None:
    """Upload a file piece by piece, with other requests in between that are wrong."""
    url = str(persistently(client.begin, len(content), "a.bin"))
    offset = 0
    while offset < len(content):
        if choose.random() < 0.2:
            misplace(client, url, offset, choose)
        if choose.random() < 0.2:
            double(client, url, offset, content)
        if choose.random() < 0.2:
            exceed(client, site, url, offset, content)
        with suppress(httpx.TransportError):
            stop = len(content) if choose.random() < 0.5 else choose.randint(offset, len(content))
            response = client.add(url, offset, content[offset:stop])
            assert response.status_code in (204, 409, 423), response.text
        found = persistently(client.offset, url)
        assert isinstance(found, int) and found >= offset, "stored bytes are never lost"
        offset = found
    assert stored_digest(site, url) == hashlib.sha256(content).hexdigest()
    assert storage_is_exact(site)


def partial_file_at_any_offset(
    content: UploadContent | None, row: Upload, request: UploadRequest, upload_hash: "_Hash | None"
) -> PartialFile:
    """The defect of the control: bytes are added whatever offset the client names."""
    return PartialFile(content, row, replace(request, offset=row.offset), upload_hash)


def misplace(client: Tus, url: str, offset: int, choose: random.Random) -> None:
    """Send bytes at a wrong offset."""
    wrong = offset + choose.choice([1, 10, 10**9] + [-1] * (offset > 0))
    with suppress(httpx.TransportError):
        assert client.add(url, wrong, b"wrong bytes").status_code == 409


def exceed(client: Tus, site: Site, url: str, offset: int, content: bytes) -> None:
    """Send more bytes than announced, without their number. Hardly any of the excess is stored."""

    def body() -> Iterator[bytes]:
        yield content[offset:]
        for _ in range(8):
            yield bytes(SMALL_BLOCK)

    with suppress(httpx.TransportError):
        assert client.add(url, offset, body()).status_code in (409, 413)
    store = site.app.state.store
    if isinstance(store, LocalStore):
        partial = store.partial_path(upload_id(url))
        assert not partial.exists() or partial.stat().st_size <= len(content) + SMALL_BLOCK


def double(client: Tus, url: str, offset: int, content: bytes) -> None:
    """Let two requests write concurrently. Each may be refused, and the stored bytes are correct."""

    def send(end: int) -> int:
        with suppress(httpx.TransportError):
            return client.add(url, offset, content[offset:end]).status_code
        return 0

    ends = [offset + (len(content) - offset) // 2, len(content)]
    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(send, ends)) <= {0, 204, 409, 413, 423}


def contents(site: Site) -> Iterator[tuple[str, bytes]]:
    with site.app.state.database.read() as session:
        files = session.scalars(select(StoredFile)).all()
    for file in files:
        yield file.digest, site.app.state.store.read(file.object_key)


def unfinished(site: Site) -> int:
    """Uploads created by a request whose response was lost."""
    shown = site.admin.get(f"{site.path}/uploads").json()
    return sum(not item["complete"] and item["offset"] > 0 for item in shown)
