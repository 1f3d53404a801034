"""Rows of ``make bench``: uploads and downloads of large files, compared with a minimal server.

    upload    one file by the standard `tuspy`, and by our client, which also hashes and verifies it
    download  one object by a signed link

Ours is a complete platform, whose worker and agent are idle. An upload is hashed, synced and complete when the
client returns. The contenders are at the end of this file; each runs in its own process (``harness.interleave``).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
from pydantic import SecretStr
from tusclient.client import TusClient

from tests.benchmarks.harness.interleave import Contender, Pacer, Request, Spent, in_turn
from tests.benchmarks.platform.bare_http import bare_server
from tests.benchmarks.platform.process_memory import reset_peak, status_mib
from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.trainer.shapes import TOY
from tests.live import TEAM, Live, live_platform
from trainwright.client import Client
from trainwright.transport.local_files import find_files
from trainwright.transport.tus import TusUploader
from trainwright.transport.upload_memory import UploadMemory
from trainwright_backend.core.local_store import LocalStore

Entries = dict[str, Entry]

MIB = 1 << 20
TUS_REQUEST_BYTES = 64 * MIB
"""Standard clients read a request's bytes into memory."""
UPLOAD_MARKS = 150.0, 500.0
DOWNLOAD_MARKS = 700.0, 700.0
MEMORY_MIB = 64.0
_WARM_UP = 1


def upload(given: argparse.Namespace) -> Entries:
    """MB/s of a file by each client, and the growth of the API's memory."""
    file = random_file(given.folder / "upload.bin", _mebibytes(given))
    written = given.folder / "bare-upload.bin"
    with live_platform(given.folder / "upload-platform", timers={}) as live, bare_server(written) as bare:
        ours = _upload_options(live, file)
        api, seconds_before = _api(live), _cpu_seconds(_api(live))
        reset_peak(api)
        before = status_mib(api, "VmRSS")
        spent = _in_turn(
            given.folder / "upload",
            {
                "tuspy": ("send_by_tuspy", ours),
                "client": ("send_by_client", ours),
                "file": ("put", {"url": f"{bare}/file", "file": str(file)}),
                "drop": ("put", {"url": f"{bare}/drop", "file": str(file)}),
            },
            1 if given.toy else 2,
        )
        growth = max(status_mib(api, "VmHWM") - before, 0.1)
        sent_gib = 2 * (len(spent["tuspy"].wall) + _WARM_UP) * file.stat().st_size / 2**30
        used = (_cpu_seconds(api) - seconds_before) / sent_gib
    rates = _rates(spent, file.stat().st_size)
    print(f"  bare: {rates['drop']:.0f} MB/s read and dropped; the API used {used:.2f} s of CPU a GiB")
    file.unlink()
    written.unlink()
    return {
        "upload": _rate(rates["tuspy"], rates["file"], UPLOAD_MARKS),
        "upload-client": _rate(rates["client"], rates["file"], UPLOAD_MARKS),
        "upload-memory": at_most(growth, MEMORY_MIB, "MiB that the API grew, peer: the mark", 1.0, 1.0),
    }


def download(given: argparse.Namespace) -> Entries:
    """MB/s of an object by a signed link, of Starlette's file answer, and of reading the file."""
    file = random_file(given.folder / "download.bin", _mebibytes(given))
    with live_platform(given.folder / "download-platform", timers={}) as live, bare_server(file) as bare:
        folder = live.platform.folder
        store = LocalStore(folder.path / "objects", SecretStr(folder.secret("secret_key")))
        store.put_file("bench/object", file)
        link = store.sign("GET", "bench/object", 3_600)
        api = _api(live)
        reset_peak(api)
        before = status_mib(api, "VmRSS")
        spent = _in_turn(
            given.folder / "download",
            {
                "ours": ("get", {"url": live.platform.url + link}),
                "bare": ("get", {"url": f"{bare}/file"}),
                "raw": ("read_raw", {"file": str(file)}),
            },
            1 if given.toy else 3,
        )
        growth = max(status_mib(api, "VmHWM") - before, 0.1)
    rates = _rates(spent, file.stat().st_size)
    print(f"  the file read, from memory: {rates['raw']:.0f} MB/s")
    file.unlink()
    return {
        "download": _rate(rates["ours"], rates["bare"], DOWNLOAD_MARKS),
        "download-memory": at_most(growth, MEMORY_MIB, "MiB that the API grew, peer: the mark", 1.0, 1.0),
    }


def _mebibytes(given: argparse.Namespace) -> int:
    return 8 if given.toy else 1_024


def random_file(path: Path, mebibytes: int) -> Path:
    """Write a file of random bytes."""
    with path.open("wb") as out:
        for _ in range(mebibytes):
            out.write(os.urandom(MIB))
    return path


def _upload_options(live: Live, file: Path) -> dict[str, str]:
    return {"server": live.platform.url, "key": live.client.create_key("bench").secret, "file": str(file)}


def _in_turn(
    folder: Path, contenders: Mapping[str, tuple[str, dict[str, str]]], rounds: int
) -> dict[str, Spent]:
    request = Request(
        folder=folder,
        model=TOY.model,
        vocabulary=TOY.vocabulary,
        batch=TOY.batch,
        steps=_WARM_UP + 2 * rounds,
        threads=1,
    )
    functions = {name: Contender(__name__, function) for name, (function, _) in contenders.items()}
    options = {name: words for name, (_, words) in contenders.items()}
    return in_turn(functions, request, _WARM_UP, rounds, options=options)


def _rates(spent: Mapping[str, Spent], size_bytes: int) -> dict[str, float]:
    return {name: size_bytes / 1e6 / one.wall_median() for name, one in spent.items()}


def _rate(ours: float, peer: float, marks: tuple[float, float]) -> Entry:
    """An entry whose marks are absolute speeds, independent of the peer."""
    passes, goal = marks
    reached = "goal" if ours >= goal else "pass" if ours >= passes else "no"
    return Entry(ours, peer, ours / peer, "MB/s", passes / peer, goal / peer, reached)


def _api(live: Live) -> int:
    """Process id of this platform's API."""
    mark = f"TRAINWRIGHT_DATA_DIR={live.platform.folder.path}".encode()
    (found,) = (
        child.pid
        for child in psutil.Process().children()
        if "serve" in child.cmdline() and mark in Path(f"/proc/{child.pid}/environ").read_bytes()
    )
    return found


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


# --- contenders


def send_by_tuspy(request: Request, pacer: Pacer) -> None:
    options = request.options
    headers = {"Authorization": f"Bearer {options['key']}"}
    client = TusClient(f"{options['server']}/api/v1/teams/{TEAM}/uploads", headers=headers)
    pacer.start()
    for number in range(request.steps):
        uploader = client.uploader(
            options["file"], chunk_size=TUS_REQUEST_BYTES, metadata={"filename": f"{number}.bin"}
        )
        uploader.upload()
        url = uploader.url
        assert url is not None
        pacer.step_done(partial(_drop, url, headers))


def _drop(url: str, headers: Mapping[str, str]) -> None:
    """Delete the upload, so that the same bytes are new the next time."""
    httpx.delete(url, headers={**headers, "Tus-Resumable": "1.0.0"}).raise_for_status()


def send_by_client(request: Request, pacer: Pacer) -> None:
    options, path = request.options, Path(request.options["file"])
    with Client(options["server"], options["key"]) as client:
        sender = TusUploader(client, f"/teams/{TEAM}/uploads", UploadMemory(request.folder / "memory.json"))
        pacer.start()
        for number in range(request.steps):
            # A changed modification time makes it a new file, whose digest is not known yet.
            os.utime(path, (number, number))
            (file,) = find_files([path]).files
            pacer.begin()
            (upload,) = sender.send([file], lambda count: None)
            pacer.step_done(partial(sender.drop, file, upload))


def put(request: Request, pacer: Pacer) -> None:
    """The entire file in one request."""
    url, path = urlsplit(request.options["url"]), Path(request.options["file"])
    pacer.start()
    for _ in range(request.steps):
        with _connected(url.netloc) as connection, path.open("rb") as body:
            connection.request("PUT", url.path, body, {"Content-Length": str(path.stat().st_size)})
            response = connection.getresponse()
            response.read()
            assert response.status == 200
        pacer.step_done()


def get(request: Request, pacer: Pacer) -> None:
    """Read and drop the bytes."""
    url = urlsplit(request.options["url"])
    buffer = memoryview(bytearray(MIB))
    pacer.start()
    for _ in range(request.steps):
        with _connected(url.netloc) as connection:
            connection.request("GET", url.path)
            response = connection.getresponse()
            assert response.status == 200
            left = int(response.headers["Content-Length"])
            while left and (count := response.readinto(buffer)):
                left -= count
            assert not left
        pacer.step_done()


def read_raw(request: Request, pacer: Pacer) -> None:
    path, buffer = Path(request.options["file"]), memoryview(bytearray(MIB))
    pacer.start()
    for _ in range(request.steps):
        with path.open("rb", buffering=0) as content:
            while content.readinto(buffer):
                pass
        pacer.step_done()


@contextmanager
def _connected(address: str) -> Iterator[HTTPConnection]:
    connection = HTTPConnection(address, blocksize=MIB)
    try:
        yield connection
    finally:
        connection.close()


TRANSFER_ROWS: dict[str, Callable[[argparse.Namespace], Entries]] = {"upload": upload, "download": download}
