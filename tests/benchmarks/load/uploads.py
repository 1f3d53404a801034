"""Row ``upload``: one large file by a standard tus client, and how much the memory of the API process that receives it grows.

The file is new to the platform each time. An upload is hashed, stored and complete when the client returns. With PostgreSQL it is
stored in the S3-compatible store, which is moto's server here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from tusclient.client import TusClient

from tests.benchmarks.load.processes import cpu_shares
from tests.benchmarks.load.row import Load, Measure, Row
from tests.benchmarks.load.size import UPLOAD_GROWTH_MB, UPLOAD_MEGABYTES_PER_SECOND
from tests.benchmarks.load.table import Value, at_least, at_most
from tests.benchmarks.platform.process_memory import reset_peak, status_mib
from tests.benchmarks.platform.server import Site
from tests.benchmarks.platform.transfers import TUS_REQUEST_BYTES, random_file

MIB = 1 << 20


@contextmanager
def upload(load: Load) -> Iterator[Measure]:
    """MB/s, and growth."""
    site, api = load.site, load.site.processes["api 1"]
    with tempfile.TemporaryDirectory(prefix="trainwright-upload-") as name:
        send(
            site, random_file(Path(name) / "small.bin", 1)
        )  # the first upload imports and opens what all need

        def measure() -> list[Value]:
            file = random_file(Path(name) / "upload.bin", load.size.upload_mib)
            reset_peak(api)
            before, started = status_mib(api, "VmRSS"), time.perf_counter()
            with cpu_shares(site.processes):
                url = send(site, file)
            seconds = time.perf_counter() - started
            grown = (status_mib(api, "VmHWM") - before) * MIB / 1e6
            drop(site, url)
            rate = file.stat().st_size / 1e6 / seconds
            return [
                Value("upload", rate, "MB/s", at_least(UPLOAD_MEGABYTES_PER_SECOND)),
                Value("API memory", grown, "MB more", at_most(UPLOAD_GROWTH_MB)),
            ]

        yield measure


def send(site: Site, file: Path) -> str:
    """Upload a file; returns the upload's address.

    Raises:
        tusclient.exceptions.TusCommunicationError: the server refused it.
    """
    client = TusClient(f"{site.url}{site.team_path}/uploads", headers=_headers(site))
    uploader = client.uploader(str(file), chunk_size=TUS_REQUEST_BYTES, metadata={"filename": file.name})
    uploader.upload()
    url = uploader.url
    assert isinstance(url, str), "the upload is complete"
    return url


def drop(site: Site, url: str) -> None:
    """Delete an upload."""
    httpx.delete(url, headers={**_headers(site), "Tus-Resumable": "1.0.0"}).raise_for_status()


def _headers(site: Site) -> dict[str, str]:
    return {"Authorization": f"Bearer {site.key}"}


UPLOAD_ROWS: dict[str, Row] = {"upload": upload}
