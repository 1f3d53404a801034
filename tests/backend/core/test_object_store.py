"""Objects are written atomically, and signed links permit exactly one operation."""

import hashlib
import os
import time
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import SecretStr

from trainwright_backend.core.object_store import INCOMING, LocalStore

CONTENT = b"0123456789" * 300_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", SecretStr("a secret for signing links, long"))


def leftovers(store: LocalStore) -> list[Path]:
    return list((store.root / INCOMING).iterdir())


def test_an_object_is_read_entirely_and_in_ranges(store: LocalStore) -> None:
    stored = store.write("team/a/b.bin", CONTENT)
    assert (stored.bytes, stored.digest) == (len(CONTENT), DIGEST)
    assert store.stat("team/a/b.bin") == len(CONTENT)
    assert b"".join(store.open_read("team/a/b.bin")) == CONTENT
    assert b"".join(store.open_read("team/a/b.bin", 5, 12)) == CONTENT[5:12]
    assert store.list_prefix("team/a") == ["team/a/b.bin"]
    assert leftovers(store) == []


def test_an_unfinished_object_does_not_exist(store: LocalStore) -> None:
    with pytest.raises(ZeroDivisionError), store.open_write("a/b") as incoming:
        incoming.write(b"half")
        raise ZeroDivisionError
    assert store.stat("a/b") is None and leftovers(store) == []


def test_deleting_a_missing_object_does_nothing(store: LocalStore) -> None:
    store.write("a/b/c", b"x")
    for _ in range(2):
        store.delete("a/b/c")
        store.delete_prefix("a")
    assert store.stat("a/b/c") is None and not (store.root / "a").exists()


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
    answer = anonymous.put(link, content=sent)
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] in ("bytes", "digest")
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
        answer = anonymous.request(method, link)
        assert (answer.status_code, answer.json()["code"]) == (403, code)
    assert anonymous.get(store.sign("GET", "t/gone.bin", 60)).status_code == 404
