"""After any sequence of requests, cuts and kills, an upload's offset and bytes are correct."""

import base64
import hashlib
import random
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.backend.conftest import Site
from tests.backend.uploads.conftest import BYTES, Tus, storage_is_exact
from tests.backend.uploads.faults import Proxy, Server
from tests.live import eventually

SIZE = 400_000
CONTENT = random.Random(3).randbytes(SIZE)
EXAMPLES = 12
STEPS = 12


@pytest.fixture
def surroundings(site: Site) -> Iterator[tuple[Site, Server, Proxy, Tus]]:
    with Server(site.app.state.settings) as server, Proxy(server.port) as proxy:
        headers = {"Authorization": site.admin.headers["Authorization"]}
        with httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", headers=headers, timeout=30) as http:
            yield site, server, proxy, Tus(http, f"{site.path}/uploads")


@pytest.mark.slow(target="databases")
def test_after_any_sequence_offset_and_bytes_are_correct(
    surroundings: tuple[Site, Server, Proxy, Tus],
) -> None:
    site, server, proxy, tus = surroundings

    class Uploads(RuleBasedStateMachine):
        """At least ``safe`` and at most ``sent`` bytes are stored."""

        @initialize()
        def begin(self) -> None:
            proxy.cut_after(10**12)
            self.url = tus.begin(SIZE)
            self.safe = self.sent = 0

        def where(self) -> int:
            """The offset that HEAD returns."""
            offset = tus.offset(self.url)
            assert self.safe <= offset <= self.sent
            self.safe = self.sent = offset
            return offset

        @rule(count=st.integers(0, SIZE), by_post=st.booleans())
        def add(self, count: int, by_post: bool) -> None:
            offset = self.where()
            body = CONTENT[offset : offset + count]
            if by_post:
                headers = BYTES | {"X-HTTP-Method-Override": "PATCH", "Upload-Offset": str(offset)}
                response = tus.client.post(self.url, headers=headers, content=body)
            else:
                response = tus.add(self.url, offset, body)
            assert response.status_code == 204, response.text
            self.safe = self.sent = offset + len(body)
            assert response.headers["Upload-Offset"] == str(self.safe)

        @rule(count=st.integers(1, SIZE), after=st.integers(1, SIZE), kill=st.booleans())
        def add_over_a_cut(self, count: int, after: int, kill: bool) -> None:
            offset = self.where()
            body = CONTENT[offset : offset + count]
            proxy.cut_after(after, server.kill if kill else lambda: None)
            with suppress(httpx.TransportError):
                response = tus.add(self.url, offset, body)
                assert response.status_code == 204, response.text
                self.safe = offset + len(body)
            self.sent = offset + len(body)
            proxy.cut_after(10**12)
            eventually(self.is_settled, "the request that was cut is over")

        def is_settled(self) -> bool:
            """Whether the server accepts a request at its offset. Before that, it may be storing what it received."""
            return tus.add(self.url, tus.offset(self.url), b"").status_code == 204

        @rule(count=st.integers(1, SIZE), is_right=st.booleans())
        def add_with_a_checksum(self, count: int, is_right: bool) -> None:
            offset = self.where()
            body = CONTENT[offset : offset + count]
            digest = hashlib.sha256(body if is_right else body + b"!").digest()
            headers = {"Upload-Checksum": f"sha256 {base64.b64encode(digest).decode()}"}
            response = tus.add(self.url, offset, body, **headers)
            if offset == SIZE or is_right:
                assert response.status_code in (204, 460), response.text
            assert (response.status_code == 204) == (is_right or offset == SIZE)
            self.safe = self.sent = offset + (len(body) if is_right else 0)

        @rule(offset=st.integers(0, 2 * SIZE), body=st.binary(min_size=1, max_size=100))
        def add_elsewhere(self, offset: int, body: bytes) -> None:
            true = self.where()
            if offset != true:
                response = tus.add(self.url, offset, body)
                assert (response.status_code, response.headers["Upload-Offset"]) == (409, str(true))

        @rule()
        def kill(self) -> None:
            server.kill()

        @rule()
        def drop_and_begin_again(self) -> None:
            assert tus.drop(self.url).status_code == 204
            self.begin()

        def teardown(self) -> None:
            offset = self.where()
            assert tus.add(self.url, offset, CONTENT[offset:]).status_code == 204
            shown = {item["id"]: item for item in tus.client.get(tus.path).json()}
            mine = shown[self.url.rsplit("/", 1)[-1]]
            assert mine["complete"] and mine["digest"] == hashlib.sha256(CONTENT).hexdigest()
            assert storage_is_exact(site)
            assert tus.drop(self.url).status_code == 204
            assert site.admin.get(site.path).json()["storage"]["used_bytes"] == 0

    run_state_machine_as_test(
        Uploads,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
