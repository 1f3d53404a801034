"""Objects are written atomically, and signed links permit exactly one operation."""

import hashlib
import os
import time
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr

from tests.backend.bucket_proxy import bucket_proxy
from tests.backend.conftest import Site, both_stores, new_bucket
from trainwright_backend.api.blobs import MIN_DIRECT_SECONDS
from trainwright_backend.core.file_cache import FileCache
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.object_store import INCOMING, ObjectDamagedError, ObjectStore, StoredObject
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.s3_errors import ObjectStoreError
from trainwright_backend.core.s3_writer import PART_BYTES, PARTS_AT_ONCE
from trainwright_backend.core.settings import Settings

CONTENT = b"0123456789" * 300_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", SecretStr("a secret for signing links, long"))


@pytest.fixture
def either(object_store: dict[str, Any], tmp_path: Path) -> ObjectStore:
    """A local store or a bucket."""
    secret = SecretStr("a secret for signing links, long")
    return open_store(Settings(secret_key=secret, data_dir=tmp_path, **object_store))


def leftovers(store: LocalStore) -> list[Path]:
    return list((store.root / INCOMING).iterdir())


@both_stores
@pytest.mark.parametrize("block", [1_000_000, 3 * PART_BYTES])
@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 1])
def test_an_object_is_read_entirely_and_in_ranges(either: ObjectStore, size: int, block: int) -> None:
    content = (CONTENT * 6)[:size]
    with either.open_write("team/a/b.bin") as incoming:
        for start in range(0, size, block):
            incoming.write(content[start : start + block])
        assert either.stat("team/a/b.bin") is None, "it is not visible before it is complete"
        stored = incoming.finish()
    assert stored == StoredObject(size, hashlib.sha256(content).hexdigest())
    assert either.stat("team/a/b.bin") == size and either.content_of("team/a/b.bin") == stored
    assert b"".join(either.open_read("team/a/b.bin")) == content
    assert b"".join(either.open_read("team/a/b.bin", 5, 12)) == content[5:12]
    assert either.local_file("team/a/b.bin").read_bytes() == content
    assert either.list_prefix("team/a") == either.list_prefix("") == ["team/a/b.bin"]
    either.write("team/ab", b"beside the folder")
    assert either.list_prefix("team/a") == ["team/a/b.bin"]


@both_stores
def test_a_discarded_object_does_not_exist(either: ObjectStore) -> None:
    with pytest.raises(ZeroDivisionError), either.open_write("a/b") as incoming:
        incoming.write(bytes(9 << 20))
        raise ZeroDivisionError
    assert either.stat("a/b") is None and either.list_prefix("") == []
    with pytest.raises(FileNotFoundError):
        either.local_file("a/b").read_bytes()
    with pytest.raises(FileNotFoundError):
        either.content_of("a/b")


@both_stores
def test_deleting_takes_a_folder_or_one_object(either: ObjectStore) -> None:
    for key in ("a/b/c", "a/d", "ab"):
        either.write(key, b"x")
    for _ in range(2):
        either.delete_prefix("a")
    assert either.list_prefix("") == ["ab"]
    either.delete("ab")
    assert either.list_prefix("") == []


@pytest.fixture
def bucket(s3_endpoint: str, tmp_path: Path) -> Settings:
    """Settings of a new bucket."""
    secret = SecretStr("a secret for signing links, long")
    return Settings(secret_key=secret, data_dir=tmp_path, **new_bucket(s3_endpoint))


def test_an_object_that_was_changed_in_the_bucket_is_refused(bucket: Settings) -> None:
    store = open_store(bucket)
    store.write("a/b", b"as stored")
    assert store.local_file("a/b").read_bytes() == b"as stored"
    kept = {
        "x-amz-meta-sha256": hashlib.sha256(b"as stored").hexdigest(),
        "Authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request",
    }
    folder = (bucket.object_store_url or "").removeprefix("s3://")
    httpx.put(f"{bucket.s3_endpoint}/{folder}/a/b", content=b"damaged!!", headers=kept).raise_for_status()
    with pytest.raises(ObjectDamagedError, match="a/b"):
        store.local_file("a/b")


def test_bytes_corrupted_during_the_upload_to_the_bucket_are_detected_and_deleted(
    bucket: Settings, tmp_path: Path
) -> None:
    """A proxy in between flips a bit of each body and leaves the header that moto does not check."""

    def flip(method: str, _: str, body: bytearray) -> None:
        if method == "PUT" and body:
            body[0] ^= 1

    with bucket_proxy(str(bucket.s3_endpoint), flip) as address:
        store = open_store(bucket.model_copy(update={"s3_endpoint": address}))
        for content in (b"small", bytes(9 << 20)):
            with pytest.raises(ObjectDamagedError):
                store.write("a/b", content)
            assert open_store(bucket).stat("a/b") is None


def test_a_bucket_that_fails_while_an_object_is_discarded_does_not_hide_why(bucket: Settings) -> None:
    discarded = Event()

    def refuse_parts(method: str, path: str, _: bytearray) -> int | None:
        if method != "PUT" or "partNumber" not in path:
            return None
        discarded.wait()
        return 403

    def write_and_fail(store: ObjectStore) -> None:
        with store.open_write("a/b") as incoming:
            incoming.write(bytes((PARTS_AT_ONCE + 2) * PART_BYTES + 1))
            discarded.set()
            raise ZeroDivisionError

    with bucket_proxy(str(bucket.s3_endpoint), refuse_parts) as address, pytest.raises(ZeroDivisionError):
        write_and_fail(open_store(bucket.model_copy(update={"s3_endpoint": address})))
    assert open_store(bucket).stat("a/b") is None


def test_a_bucket_that_does_not_answer_is_a_503(bucket: Settings) -> None:
    gone = open_store(bucket.model_copy(update={"object_store_url": "s3://no-such-bucket"}))
    with pytest.raises(ObjectStoreError) as refused:
        gone.write("a/b", b"x")
    assert refused.value.status == 503 and "Retry-After" in refused.value.headers


def test_the_cache_stays_within_its_limit_and_keeps_recently_used_objects(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, limit_bytes=25)
    (tmp_path / INCOMING).mkdir()
    old = [cache.add(name, lambda target: _write(target, bytes(10))) for name in "ab"]
    for path in old:
        os.utime(path, (1, 1 + old.index(path)))
    assert cache.add("c", lambda target: _write(target, bytes(10))).exists()
    assert [path.exists() for path in old] == [False, True]
    assert cache.find("a") is None and cache.find("b") == old[1]
    assert cache.add("d", lambda target: _write(target, bytes(30))).exists()
    assert cache.find("b") is not None, "it was used within the hour"


def _write(target: Path, content: bytes) -> None:
    target.write_bytes(content)


def test_the_digest_matches_the_bytes(store: LocalStore) -> None:
    stored = store.write("team/a/b.bin", CONTENT)
    assert (stored.bytes, stored.digest) == (len(CONTENT), DIGEST)
    assert store.stat("team/a/b.bin") == len(CONTENT)
    assert b"".join(store.open_read("team/a/b.bin")) == CONTENT
    assert b"".join(store.open_read("team/a/b.bin", 5, 12)) == CONTENT[5:12]
    assert leftovers(store) == []


@pytest.mark.parametrize("key", ["", "..", "a/../b", "/etc/passwd", "a//b", "a/.hidden", "a/b\0", INCOMING])
def test_a_key_cannot_leave_the_folder(store: LocalStore, key: str) -> None:
    with pytest.raises(ValueError, match="not an object key"):
        store.path_of(key)


def test_old_files_of_killed_writers_are_deleted(store: LocalStore) -> None:
    old, new = store.root / INCOMING / "old", store.root / INCOMING / "new"
    for path in (old, new):
        path.write_bytes(b"x")
    past = time.time() - 90_000
    os.utime(old, (past, past))
    store.sweep_incoming()
    assert leftovers(store) == [new]


def test_signed_links_upload_and_download(app: FastAPI, anonymous: TestClient) -> None:
    store: LocalStore = app.state.store
    put = store.sign("PUT", "t/x.bin", 60, digest=DIGEST, bytes=len(CONTENT))
    assert anonymous.put(put, content=CONTENT).status_code == 204
    assert anonymous.put(put, content=CONTENT).status_code == 204, "repeating is harmless"
    get = store.sign("GET", "t/x.bin", 60)
    assert anonymous.get(get).content == CONTENT
    part = anonymous.get(get, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, b"0123456789")


@pytest.mark.parametrize("sent", [CONTENT[:-1], CONTENT + b"x", b"x" + CONTENT[1:], b""])
def test_an_upload_of_other_bytes_is_refused_and_discarded(
    app: FastAPI, anonymous: TestClient, sent: bytes
) -> None:
    store: LocalStore = app.state.store
    link = store.sign("PUT", "t/x.bin", 60, digest=DIGEST, bytes=len(CONTENT))
    response = anonymous.put(link, content=sent)
    assert response.status_code == 422 and response.json()["errors"][0]["field"] in ("bytes", "digest")
    assert store.stat("t/x.bin") is None and leftovers(store) == []


def test_a_link_permits_its_method_until_it_expires_and_cannot_be_changed(
    app: FastAPI, anonymous: TestClient, tmp_path: Path
) -> None:
    store: LocalStore = app.state.store
    store.write("t/x.bin", b"x")
    get = store.sign("GET", "t/x.bin", 60)
    foreign = LocalStore(tmp_path / "other", SecretStr("a different secret, as long")).sign(
        "GET", "t/x.bin", 60
    )
    wrong = [
        ("PUT", get, "bad_link"),
        ("GET", get[:-2] + "xx", "bad_link"),
        ("GET", foreign, "bad_link"),
        ("GET", store.sign("GET", "t/x.bin", -1), "link_expired"),
    ]
    for method, link, code in wrong:
        response = anonymous.request(method, link)
        assert (response.status_code, response.json()["code"]) == (403, code)
    assert anonymous.get(store.sign("GET", "t/gone.bin", 60)).status_code == 404


def test_a_link_to_the_bucket_expires_with_the_signed_link(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = site.app.state.store
    store.write("team/file", b"content")
    lifetimes: list[float] = []

    def direct_link(key: str, expires_seconds: float) -> str:
        lifetimes.append(expires_seconds)
        return f"https://bucket.example/{key}"

    monkeypatch.setattr(store, "direct_link", direct_link)
    for seconds in (600, 1):
        response = site.anonymous().get(store.sign("GET", "team/file", seconds), follow_redirects=False)
        assert response.headers["Location"] == "https://bucket.example/team/file"
    assert lifetimes[0] <= 600 and lifetimes[1] == MIN_DIRECT_SECONDS
