"""A bucket that answers slowly delays the upload that waits for it, and no other request."""

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import httpx
import pytest

from tests.backend.bucket_proxy import bucket_proxy
from tests.backend.conftest import Site, new_bucket
from tests.backend.uploads.conftest import Tus
from trainwright_backend.core.s3_writer import PART_BYTES

CONTENT = bytes(2 * PART_BYTES + 1)
PATIENCE_SECONDS = 30.0


@dataclass
class HeldAborts:
    """The requests to abort an object that is being written, which the bucket answers only after `release`."""

    begun: Event = field(default_factory=Event)
    release: Event = field(default_factory=Event)

    def __call__(self, method: str, path: str, _: bytearray) -> None:
        if method == "DELETE" and "uploadId" in path:
            self.begun.set()
            self.release.wait()


@pytest.fixture
def aborts() -> HeldAborts:
    return HeldAborts()


@pytest.fixture
def object_store(s3_endpoint: str, aborts: HeldAborts) -> Iterator[dict[str, Any]]:
    with bucket_proxy(s3_endpoint, aborts) as address:
        yield new_bucket(address)
        aborts.release.set()


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """These tests do not depend on the database."""
    return sqlite_url


def by_signed_link(site: Site, tus: Tus) -> httpx.Response:
    """An upload of other bytes than the link permits."""
    link = site.app.state.store.sign("PUT", "team/x", 60, digest="0" * 64, bytes=len(CONTENT))
    return site.anonymous().put(link, content=CONTENT)


def by_tus(site: Site, tus: Tus) -> httpx.Response:
    """An upload that does not match its checksum."""
    checksum = b64encode(hashlib.sha1(b"other bytes", usedforsecurity=False).digest()).decode()
    return tus.add(tus.begin(len(CONTENT)), 0, CONTENT, **{"Upload-Checksum": f"sha1 {checksum}"})


@pytest.mark.parametrize(("upload", "status"), [(by_signed_link, 422), (by_tus, 460)])
def test_others_are_answered_while_a_refused_upload_is_discarded(
    site: Site,
    tus: Tus,
    aborts: HeldAborts,
    upload: Callable[[Site, Tus], httpx.Response],
    status: int,
) -> None:
    with ThreadPoolExecutor(2) as pool:
        refused = pool.submit(upload, site, tus)
        try:
            assert aborts.begun.wait(PATIENCE_SECONDS), "the bucket was asked to abort the object"
            other = pool.submit(site.admin.get, "/api/v1/me")
            assert other.result(PATIENCE_SECONDS).status_code == 200
            assert not refused.done()
        finally:
            aborts.release.set()
        assert refused.result(PATIENCE_SECONDS).status_code == status
