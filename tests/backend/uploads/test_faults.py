"""Uploads survive lost connections, a killed server, wrong offsets and two writers.

The suite tries some uploads; ``TRAINWRIGHT_UPLOAD_ROUNDS=100`` tries a hundred on each database.
"""

import hashlib
import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from sqlalchemy import select

from tests.backend.conftest import Site, also_in_bucket
from tests.backend.uploads.conftest import Tus, storage_is_exact
from tests.backend.uploads.faults import Proxy, Server
from trainwright_backend.uploads.receiver import sweep_partials
from trainwright_backend.uploads.tables import StoredFile

ROUNDS = int(os.environ.get("TRAINWRIGHT_UPLOAD_ROUNDS", "20"))
"""On each of two databases."""

KILLS_EVERY = 5
LARGEST_BYTES = 600_000


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


def stored_digests(site: Site) -> list[str]:
    with site.app.state.database.read() as session:
        return list(session.scalars(select(StoredFile.digest)))


@pytest.mark.slow(target="databases")
@also_in_bucket
@pytest.mark.timeout(60 + 10 * ROUNDS)
def test_bytes_arrive_intact_through_cuts_kills_wrong_offsets_and_two_writers(
    site: Site, server: Server, proxy: Proxy, client: Tus
) -> None:
    choose = random.Random(18)
    digests, kills = [], 0
    for number in range(ROUNDS):
        content = choose.randbytes(choose.randint(1, LARGEST_BYTES))
        digests.append(hashlib.sha256(content).hexdigest())
        is_kill = number % KILLS_EVERY == 0
        kills += is_kill
        proxy.cut_after(choose.randint(1, len(content) + 2_000), server.kill if is_kill else lambda: None)
        url = str(persistently(client.begin, len(content), f"{number}.bin"))
        offset = 0
        while offset < len(content):
            if choose.random() < 0.2:
                misplace(client, url, offset, choose)
            if choose.random() < 0.2:
                double(client, url, offset, content)
            with suppress(httpx.TransportError):
                stop = len(content) if choose.random() < 0.5 else choose.randint(offset, len(content))
                answer = client.add(url, offset, content[offset:stop])
                assert answer.status_code in (204, 409, 423), answer.text
            found = persistently(client.offset, url)
            assert isinstance(found, int) and found >= offset, "stored bytes are never lost"
            offset = found
    assert kills >= ROUNDS // KILLS_EVERY and proxy.cuts >= ROUNDS * 0.6
    assert sorted(stored_digests(site)) == sorted(digests)
    for digest, content in contents(site):
        assert hashlib.sha256(content).hexdigest() == digest
    assert storage_is_exact(site)
    sweep_partials(site.app.state.database, site.app.state.store)
    assert len(site.app.state.store.list_partials()) == unfinished(site)


def misplace(client: Tus, url: str, offset: int, choose: random.Random) -> None:
    """Send bytes at a wrong offset."""
    wrong = offset + choose.choice([1, 10, 10**9] + [-1] * (offset > 0))
    with suppress(httpx.TransportError):
        assert client.add(url, wrong, b"wrong bytes").status_code in (409, 413, 423)


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
