"""A tus client that sends exactly what a test specifies."""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import httpx
import pytest
from sqlalchemy import func, select

from tests.backend.conftest import Site
from trainwright_backend.teams.tables import StorageQuota
from trainwright_backend.uploads.tables import StoredFile, Upload

TUS = {"Tus-Resumable": "1.0.0"}
BYTES = TUS | {"Content-Type": "application/offset+octet-stream"}


def metadata(**values: str | bytes) -> str:
    """`Upload-Metadata` of these values."""
    raw = {key: value.encode() if isinstance(value, str) else value for key, value in values.items()}
    return ",".join(f"{key} {base64.b64encode(value).decode()}" for key, value in raw.items())


@dataclass(frozen=True)
class Tus:
    """A tus client."""

    client: httpx.Client
    path: str

    def announce(self, size: int, name: str = "a.txt", **headers: str) -> httpx.Response:
        headers = TUS | {"Upload-Length": str(size), "Upload-Metadata": metadata(filename=name)} | headers
        return self.client.post(self.path, headers=headers)

    def begin(self, size: int, name: str = "a.txt") -> str:
        """Address of a new upload."""
        response = self.announce(size, name)
        assert response.status_code == 201, response.text
        return response.headers["Location"]

    def add(self, url: str, offset: int, body: bytes | Iterable[bytes], **headers: str) -> httpx.Response:
        return self.client.patch(url, content=body, headers=BYTES | {"Upload-Offset": str(offset)} | headers)

    def offset(self, url: str) -> int:
        response = self.client.head(url, headers=TUS)
        assert response.status_code == 200, response.status_code
        return int(response.headers["Upload-Offset"])

    def drop(self, url: str) -> httpx.Response:
        return self.client.delete(url, headers=TUS)

    def send(self, content: bytes, name: str = "a.txt") -> str:
        """Upload a complete file; returns its id."""
        url = self.begin(len(content), name)
        response = self.add(url, 0, content)
        assert response.status_code == 204, response.text
        return url.rsplit("/", 1)[-1]


@pytest.fixture
def tus(site: Site) -> Tus:
    return Tus(site.admin, f"{site.path}/uploads")


def storage_is_exact(site: Site) -> bool:
    """Whether the used storage equals the open uploads, as announced, plus the stored files."""
    with site.app.state.database.read() as session:
        used = session.scalar(select(func.sum(StorageQuota.used_bytes))) or 0
        announced = session.scalar(select(func.sum(Upload.bytes)).where(Upload.stored_file_id.is_(None))) or 0
        stored = session.scalar(select(func.sum(StoredFile.bytes))) or 0
    return int(used) == int(announced) + int(stored)


@pytest.fixture
def exact(site: Site) -> Callable[[], bool]:
    return lambda: storage_is_exact(site)
