"""Downloads: permitted paths, verification and the cache."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.agent.api import NODE_TOKEN, ScriptedApi
from trainwright.contracts.agent_protocol import Download
from trainwright_agent.client import Client
from trainwright_agent.supervisor.fetch import Fetcher, FetchError, check_downloads, trim_cache

DIGEST = "0" * 64


@pytest.mark.parametrize(
    "path",
    [
        "job.json",
        "/etc/passwd",
        "data/../job.json",
        "data/a/b",
        "out/events.jsonl",
        "data/",
        "data/.hidden",
        "data/a\nb",
    ],
)
def test_paths_outside_data_and_resume_are_refused(path: str) -> None:
    download = Download(path=path, bytes=1, digest=DIGEST, url="/x", object_key="x")
    with pytest.raises(FetchError, match="not allowed"):
        check_downloads([download])


def test_a_digest_that_points_outside_the_cache_is_refused() -> None:
    download = Download(path="data/a", bytes=1, digest="../" + "0" * 61, url="/x", object_key="x")
    with pytest.raises(FetchError, match="not allowed"):
        check_downloads([download])


def fetcher(api: ScriptedApi, tmp_path: Path, **change: Any) -> Fetcher:
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "folder").mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "client": Client(api.url, NODE_TOKEN),
        "cache": tmp_path / "cache",
        "cache_limit_bytes": 2**20,
        "object_store": None,
        "on_progress": lambda _: None,
        "on_bytes": lambda: None,
        "renew_links": lambda: pytest.fail("no link was refused"),
        "stopped": threading.Event(),
    }
    return Fetcher(**(given | change))


def test_a_damaged_file_in_the_cache_is_fetched_again(api: ScriptedApi, tmp_path: Path) -> None:
    download = Download.model_validate(api.store("data/train-0.bin", b"tokens"))
    fetching = fetcher(api, tmp_path)
    (tmp_path / "cache" / download.digest).write_bytes(b"tokenz")
    fetching.fetch_all([download], tmp_path / "folder")
    assert (tmp_path / "folder/data/train-0.bin").read_bytes() == b"tokens"
    assert (tmp_path / "cache" / download.digest).read_bytes() == b"tokens"


def test_a_damaged_object_in_the_store_is_not_used(api: ScriptedApi, tmp_path: Path) -> None:
    download = Download.model_validate(api.store("resume/model.safetensors", b"right"))
    stored = tmp_path / "store" / download.object_key
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"wrong")
    with pytest.raises(FetchError) as caught:
        fetcher(api, tmp_path, object_store=tmp_path / "store").fetch_all([download], tmp_path / "folder")
    assert caught.value.code == "checkpoint_invalid"
    assert not (tmp_path / "folder/resume/model.safetensors").exists()


def test_progress_is_described_and_only_bytes_count(api: ScriptedApi, tmp_path: Path) -> None:
    downloads = [Download.model_validate(api.store(f"data/{n}", b"x" * n)) for n in (1, 2)]
    descriptions: list[str] = []
    blocks: list[int] = []
    fetcher(api, tmp_path, on_progress=descriptions.append, on_bytes=lambda: blocks.append(1)).fetch_all(
        downloads, tmp_path / "folder"
    )
    assert descriptions == ["fetching shards 1 of 2", "fetching shards 2 of 2"]
    assert len(blocks) == 2


def test_a_download_that_breaks_off_continues_with_the_next_byte(api: ScriptedApi, tmp_path: Path) -> None:
    content = os.urandom(1_000)
    download = Download.model_validate(api.store("resume/model.safetensors", content))
    api.break_off_bytes = 300
    fetcher(api, tmp_path).fetch_all([download], tmp_path / "folder")
    assert (tmp_path / "folder/resume/model.safetensors").read_bytes() == content
    assert api.begins == [None, "bytes=300-", "bytes=600-", "bytes=900-"]


def test_a_server_that_sends_all_of_a_file_again_is_understood(api: ScriptedApi, tmp_path: Path) -> None:
    content = os.urandom(1_000)
    api.store("resume/model.safetensors", content)
    api.has_ranges = False
    received: list[bytes] = []
    Client(api.url).get("/api/v1/blobs/store/resume/model.safetensors", received.append, begin=300)
    assert b"".join(received) == content[300:]


def test_an_expired_link_is_replaced_once_for_all_files(api: ScriptedApi, tmp_path: Path) -> None:
    stored = [api.store(f"resume/{name}", name.encode() * 100) for name in ("first", "second", "third")]
    api.expired_links = {"store/resume/second", "store/resume/third"}
    renewals = 0

    def renew() -> list[Download]:
        nonlocal renewals
        renewals += 1
        return [Download.model_validate(api.with_new_link(entry, renewals)) for entry in stored]

    downloads = [Download.model_validate(entry) for entry in stored]
    fetcher(api, tmp_path, renew_links=renew).fetch_all(downloads, tmp_path / "folder")
    for name in ("first", "second", "third"):
        assert (tmp_path / "folder/resume" / name).read_bytes() == name.encode() * 100
    assert renewals == 1


def test_a_link_that_expires_during_a_download_continues_with_the_next_byte(
    api: ScriptedApi, tmp_path: Path
) -> None:
    content = os.urandom(1_000)
    stored = api.store("resume/model.safetensors", content)
    api.break_off_bytes = 300

    def expire() -> None:
        api.expired_links = {"store/resume/model.safetensors"}

    fetcher(
        api,
        tmp_path,
        on_bytes=expire,
        renew_links=lambda: [Download.model_validate(api.with_new_link(stored, 1))],
    ).fetch_all([Download.model_validate(stored)], tmp_path / "folder")
    assert (tmp_path / "folder/resume/model.safetensors").read_bytes() == content
    assert api.begins == [None, "bytes=300-", "bytes=300-", "bytes=600-", "bytes=900-"]


def test_a_new_link_that_is_refused_too_fails_the_fetch(api: ScriptedApi, tmp_path: Path) -> None:
    download = Download.model_validate(api.store("data/train-0.bin", b"tokens"))
    api.expired_links = {"store/data/train-0.bin"}
    with pytest.raises(FetchError, match="the link is not valid") as caught:
        fetcher(api, tmp_path, renew_links=lambda: [download]).fetch_all([download], tmp_path / "folder")
    assert caught.value.code == "fetch_failed"


def test_an_empty_file_needs_no_bytes(api: ScriptedApi, tmp_path: Path) -> None:
    download = Download.model_validate(api.store("data/empty.bin", b""))
    fetcher(api, tmp_path).fetch_all([download], tmp_path / "folder")
    assert (tmp_path / "folder/data/empty.bin").read_bytes() == b""


def test_a_file_that_is_shorter_than_announced_is_refused(api: ScriptedApi, tmp_path: Path) -> None:
    download = Download.model_validate(api.store("resume/model.safetensors", b"x" * 1_000))
    api.objects[download.object_key] = b"x" * 300
    with pytest.raises(FetchError) as caught:
        fetcher(api, tmp_path).fetch_all([download], tmp_path / "folder")
    assert caught.value.code == "checkpoint_invalid"


def test_the_cache_evicts_the_least_recently_used(tmp_path: Path) -> None:
    for age, name in enumerate(["new", "middle", "old"]):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (1_000 - age, 1_000 - age))
    trim_cache(tmp_path, 25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["middle", "new"]


def test_the_cache_keeps_files_that_others_are_fetching(tmp_path: Path) -> None:
    now = time.time()
    for name, age_seconds in ((".being-fetched", 3_600), (".abandoned", 25 * 3_600), ("old", 60), ("new", 0)):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (now - age_seconds, now - age_seconds))
    trim_cache(tmp_path, 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".being-fetched", "new"]


@pytest.mark.parametrize("path", ["resume/model.safetensors", "data/train-0.bin"])
def test_a_trainer_cannot_change_the_store_through_its_folder(
    api: ScriptedApi, tmp_path: Path, path: str
) -> None:
    download = Download.model_validate(api.store(path, b"committed"))
    api.objects.clear()  # nothing can be downloaded
    stored = tmp_path / "store" / download.object_key
    stored.parent.mkdir(parents=True)
    stored.write_bytes(b"committed")
    fetcher(api, tmp_path, object_store=tmp_path / "store").fetch_all([download], tmp_path / "folder")
    fetched = tmp_path / "folder" / path
    assert fetched.read_bytes() == b"committed"
    with fetched.open("r+b") as file:
        file.write(b"changed")
    assert stored.read_bytes() == b"committed"
    fetcher(api, tmp_path, object_store=tmp_path / "store").fetch_all([download], tmp_path / "folder")
    assert fetched.read_bytes() == b"committed", "the changed file is not used again"
