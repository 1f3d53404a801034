"""Real clients: the standard `tuspy` and our own, with lost connections and a killed server."""

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tusclient.client import TusClient
from tusclient.storage import filestorage

from tests.backend.conftest import Site
from tests.backend.uploads.conftest import TUS, storage_is_exact
from tests.backend.uploads.faults import Proxy, Server
from trainwright.async_client import AsyncClient
from trainwright.client import Client
from trainwright.transport import async_tus, tus
from trainwright.transport.async_tus import AsyncTusUploader
from trainwright.transport.errors import ApiError, DigestMismatchError, FileChangedError
from trainwright.transport.local_files import LocalFile, find_files
from trainwright.transport.tus import TusUploader
from trainwright.transport.upload_memory import UploadMemory

MIB = 1 << 20


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """These tests do not depend on the database."""
    return sqlite_url


@pytest.fixture
def server(site: Site) -> Iterator[Server]:
    with Server(site.app.state.settings) as running:
        yield running


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as running:
        yield running


def write(path: Path, size: int) -> Path:
    path.write_bytes(os.urandom(size))
    return path


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stock(site: Site, port: int) -> TusClient:
    headers = {"Authorization": site.admin.headers["Authorization"]}
    return TusClient(f"http://127.0.0.1:{port}{site.path}/uploads", headers=headers)


def digests(site: Site) -> list[str]:
    return [item["digest"] for item in site.admin.get(f"{site.path}/uploads").json()]


@pytest.mark.slow(target="databases")
def test_tuspy_uploads_in_chunks_with_checksums(site: Site, server: Server, tmp_path: Path) -> None:
    file = write(tmp_path / "a.bin", 3 * MIB + 7)
    uploader = stock(site, server.port).uploader(
        str(file), chunk_size=MIB, metadata={"filename": "a.bin"}, upload_checksum=True
    )
    uploader.upload()
    assert digests(site) == [digest_of(file)]


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize("kill", [False, True])
def test_tuspy_continues_after_a_lost_connection(
    site: Site, server: Server, proxy: Proxy, tmp_path: Path, kill: bool
) -> None:
    file = write(tmp_path / "a.bin", 4 * MIB)
    uploader = stock(site, proxy.port).uploader(
        str(file), chunk_size=MIB, metadata={"filename": "a.bin"}, retries=20, retry_delay=0
    )
    proxy.cut_after(2 * MIB + MIB // 2, server.kill if kill else lambda: None)
    uploader.upload()
    assert proxy.cuts == 1 and digests(site) == [digest_of(file)] and storage_is_exact(site)


@pytest.mark.slow(target="databases")
def test_tuspy_continues_in_another_process_from_its_own_store(
    site: Site, server: Server, tmp_path: Path
) -> None:
    file = write(tmp_path / "a.bin", 2 * MIB)
    options = {
        "chunk_size": MIB,
        "metadata": {"filename": "a.bin"},
        "store_url": True,
        "url_storage": filestorage.FileStorage(str(tmp_path / "urls")),
    }
    first = stock(site, server.port).uploader(str(file), **options)
    first.upload(stop_at=MIB)
    second = stock(site, server.port).uploader(str(file), **options)
    assert second.offset == MIB
    second.upload()
    assert digests(site) == [digest_of(file)]


@pytest.mark.slow(target="databases")
def test_the_server_s_memory_stays_flat(site: Site, server: Server, tmp_path: Path) -> None:
    """256 MiB in one request."""
    file = tmp_path / "large.bin"
    with file.open("wb") as out:
        for _ in range(256):
            out.write(os.urandom(MIB))
    stock(site, server.port).uploader(str(write(tmp_path / "warm", MIB)), metadata={"filename": "w"}).upload()
    process = psutil.Process(server.pid)
    before = most = process.memory_info().rss
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.01):
            most = max(most, process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    stock(site, server.port).uploader(str(file), metadata={"filename": "large.bin"}).upload()
    over.set()
    thread.join()
    assert most - before < 64 * MIB
    with file.open("rb") as content:
        assert hashlib.file_digest(content, "sha256").hexdigest() in digests(site)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small chunks and short waits, and a separate cache folder."""
    for module in (tus, async_tus):
        monkeypatch.setattr(module, "REQUEST_BYTES", MIB)
        monkeypatch.setattr(module, "BACK_OFF_SECONDS", (0.05,))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def connect(site: Site, quick: None) -> Callable[[int], Client]:
    secret = site.admin.headers["Authorization"].removeprefix("Bearer ")
    return lambda port: Client(f"http://127.0.0.1:{port}", secret)


def sender(client: Client) -> TusUploader:
    return TusUploader(client, "/teams/acme/uploads")


def ignore(count: int) -> None:
    """Ignore the progress."""


def test_our_client_sends_folders_and_reports_progress(
    site: Site, server: Server, connect: Callable[[int], Client], tmp_path: Path
) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    paths = [write(tmp_path / "data" / "a.bin", 2 * MIB + 1), write(tmp_path / "data" / "sub" / "b.bin", 10)]
    seen: list[int] = []
    with connect(server.port) as client:
        ids = sender(client).send(find_files([tmp_path / "data"]).files, seen.append)
    shown = {item["id"]: item for item in site.admin.get(f"{site.path}/uploads").json()}
    assert [shown[item]["file_name"] for item in ids] == ["data/a.bin", "data/sub/b.bin"]
    assert [shown[item]["digest"] for item in ids] == [digest_of(path) for path in paths]
    assert sum(seen) == 2 * MIB + 11


@pytest.mark.slow(target="databases")
def test_our_asynchronous_client_sends_several_files_at_once_despite_lost_connections(
    site: Site, proxy: Proxy, quick: None, tmp_path: Path
) -> None:
    paths = [write(tmp_path / f"{name}.bin", 2 * MIB) for name in "abc"]
    secret = site.admin.headers["Authorization"].removeprefix("Bearer ")
    proxy.cut_after(MIB // 2, lambda: None)

    async def send() -> list[list[str]]:
        async with AsyncClient(f"http://127.0.0.1:{proxy.port}", secret) as client:
            sender = AsyncTusUploader(client, "/teams/acme/uploads")
            files = (find_files([path]).files for path in paths)
            return await asyncio.gather(*(sender.send(each, ignore) for each in files))

    assert len({upload for (upload,) in asyncio.run(send())}) == 3
    assert sorted(digests(site)) == sorted(digest_of(path) for path in paths)
    assert proxy.cuts == 1 and storage_is_exact(site)


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize("kill", [False, True])
def test_our_client_continues_after_many_lost_connections(
    site: Site,
    server: Server,
    proxy: Proxy,
    connect: Callable[[int], Client],
    tmp_path: Path,
    kill: bool,
) -> None:
    files = find_files([write(tmp_path / "a.bin", 5 * MIB)]).files
    done, armed = 0, -1

    def again(count: int) -> None:
        nonlocal done, armed
        done += count
        if proxy.cuts > armed:
            armed = proxy.cuts
            proxy.cut_after(MIB // 2, server.kill if kill and proxy.cuts % 2 else lambda: None)

    with connect(proxy.port) as client:
        sender(client).send(files, again)
    assert proxy.cuts >= 4 and done == 5 * MIB
    assert digests(site) == [files[0].digest()] and storage_is_exact(site)


def test_our_client_continues_in_another_process(
    site: Site, server: Server, proxy: Proxy, connect: Callable[[int], Client], tmp_path: Path
) -> None:
    files = find_files([write(tmp_path / "a.bin", 3 * MIB)]).files

    class EndedError(Exception):
        """The process ends here."""

    def end_after_some_bytes(count: int) -> None:
        if count:
            raise EndedError

    with connect(server.port) as client, pytest.raises(EndedError):
        sender(client).send(files, end_after_some_bytes)
    seen: list[int] = []
    with connect(server.port) as client:
        (upload,) = sender(client).send(files, seen.append)
        assert seen == [MIB, MIB, MIB], "the first call reports what was stored before"
        assert sender(client).send(files, ignore) == [upload], "a complete one is not sent again"
        sender(client).forget(files)
        assert sender(client).send(files, ignore) != [upload]
    assert storage_is_exact(site)


def test_an_upload_that_the_server_deleted_starts_again(
    site: Site, server: Server, connect: Callable[[int], Client], tmp_path: Path
) -> None:
    files = find_files([write(tmp_path / "a.bin", MIB)]).files
    with connect(server.port) as client:
        (upload,) = sender(client).send(files, ignore)
        assert site.admin.delete(f"{site.path}/uploads/{upload}", headers=TUS).status_code == 204
        assert sender(client).send(files, ignore) != [upload]
    assert digests(site) == [files[0].digest()]


def test_a_refusal_ends_the_upload_with_its_reason(
    site: Site, server: Server, connect: Callable[[int], Client], tmp_path: Path
) -> None:
    site.admin.put(f"{site.path}/storage", json={"limit_bytes": 10})
    files = find_files([write(tmp_path / "a.bin", 11)]).files
    with connect(server.port) as client, pytest.raises(ApiError, match="your team can store 10 B"):
        sender(client).send(files, ignore)


def test_a_file_that_changes_during_the_upload_is_not_stored(
    site: Site, server: Server, connect: Callable[[int], Client], tmp_path: Path
) -> None:
    path = write(tmp_path / "a.bin", 3 * MIB)
    files = find_files([path]).files

    def change(count: int) -> None:
        write(path, 3 * MIB)

    with connect(server.port) as client, pytest.raises(FileChangedError, match=r"a\.bin"):
        sender(client).send(files, change)
    assert digests(site) == [] and storage_is_exact(site)


@pytest.mark.slow(target="databases")
def test_a_change_with_the_same_timestamp_is_detected_at_the_end(
    site: Site, server: Server, connect: Callable[[int], Client], tmp_path: Path
) -> None:
    path = write(tmp_path / "a.bin", 2 * MIB)
    (file,) = find_files([path]).files

    def change(count: int) -> None:
        write(path, 2 * MIB)
        os.utime(path, ns=(file.changed, file.changed))

    again = LocalFile(file.path, file.name, file.size_bytes, file.changed)
    with connect(server.port) as client, pytest.raises(DigestMismatchError, match=r"a\.bin"):
        sender(client).send([again], change)
    assert digests(site) == [] and storage_is_exact(site)


def test_a_damaged_cache_of_uploads_counts_as_empty(tmp_path: Path) -> None:
    memory = UploadMemory(tmp_path / "cache" / "uploads.json")
    memory.keep("a", "up_1")
    memory.keep("b", "up_2")
    assert memory.find("a") == "up_1"
    memory.forget("a")
    assert memory.find("a") is None and memory.find("b") == "up_2"
    for damage in ("", "[]", "{", '{"b": 1}', '{"b": {"upload": "x"}}', '"x"'):
        memory.path.write_text(damage)
        assert memory.find("b") is None
    memory.path.write_text('{"b": {"upload": "up_2", "time": 0}}')
    assert memory.find("b") is None, "its upload has expired long ago"
