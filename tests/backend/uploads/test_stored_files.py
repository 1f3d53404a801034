"""Stored files exist once per team and while something uses them, and are counted exactly."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import delete, func, select, update

from tests.backend.conftest import Site, also_in_bucket
from tests.backend.uploads.conftest import TUS, Tus, storage_is_exact
from trainwright_backend.auth.tables import Team
from trainwright_backend.control.loop import ControlLoop
from trainwright_backend.control.queued_deletions import delete_queued_bytes
from trainwright_backend.core import db, deletion_queue
from trainwright_backend.core.db import now
from trainwright_backend.core.errors import AppError, Invalid
from trainwright_backend.core.ids import new_id, public_id
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.tables import UploadedTokenizer
from trainwright_backend.teams.storage_quota import lock_storage
from trainwright_backend.uploads.service import complete_uploads, consume_uploads, delete_unused_files
from trainwright_backend.uploads.tables import StoredFile, Upload

CONTENT = b"the same bytes " * 100
Exact = Callable[[], bool]


@pytest.fixture
def team_id(site: Site) -> UUID:
    with site.app.state.database.read() as session:
        return session.scalars(select(Team.id)).one()


def used_bytes(site: Site) -> int:
    count: int = site.admin.get(site.path).json()["storage"]["used_bytes"]
    return count


def files_in_store(site: Site) -> int:
    store: ObjectStore = site.app.state.store
    return len(store.list_prefix("")) + len(store.list_partials())


def count_of_stored(site: Site) -> int:
    with site.app.state.database.read() as session:
        return session.scalar(select(func.count()).select_from(StoredFile)) or 0


def take(site: Site, team_id: UUID, *uploads: str) -> UUID:
    """Use uploads as a feature does: create a tokenizer with the file."""
    with site.app.state.database.write() as session:
        files = complete_uploads(session, team_id, uploads)
        user = UploadedTokenizer(
            team_id=team_id,
            name="t",
            stored_file_id=files[0].stored_file_id,
            vocabulary=1,
            end_of_text="",
            created_by_name="",
        )
        session.add(user)
        session.flush()
        consume_uploads(session, team_id, uploads)
        return user.id


def leave(site: Site, team_id: UUID, user_id: UUID) -> None:
    with site.app.state.database.write() as session:
        lock_storage(session, team_id)
        file_id = session.get_one(UploadedTokenizer, user_id).stored_file_id
        session.execute(delete(UploadedTokenizer).where(UploadedTokenizer.id == user_id))
        delete_unused_files(session, team_id, [file_id])


def control_loop(site: Site) -> ControlLoop:
    return ControlLoop(site.app.state.database, site.app.state.settings, site.app.state.store)


def test_an_upload_beyond_the_quota_is_refused_and_a_deleted_one_frees_storage(
    site: Site, tus: Tus, exact: Exact
) -> None:
    site.admin.put(f"{site.path}/storage", json={"limit_bytes": 1_000})
    url = tus.begin(700)
    refused = tus.announce(301)
    assert (refused.status_code, refused.json()["code"]) == (403, "storage_exceeded")
    assert (refused.json()["limit"], refused.json()["used"], refused.json()["asked"]) == (1_000, 700, 301)
    assert exact() and tus.announce(300).status_code == 201
    tus.drop(url)
    assert used_bytes(site) == 300 and tus.announce(700).status_code == 201 and exact()


@pytest.mark.both_databases
@also_in_bucket
def test_identical_files_count_once_and_are_stored_once(site: Site, tus: Tus, exact: Exact) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        tus.send(CONTENT, name)
        assert used_bytes(site) == len(CONTENT) and exact()
    assert count_of_stored(site) == files_in_store(site) == 1
    shown = tus.client.get(tus.path).json()
    assert {item["digest"] for item in shown} == {hashlib.sha256(CONTENT).hexdigest()}
    assert [item["file_name"] for item in shown] == ["c.txt", "b.txt", "a.txt"]


def test_another_team_stores_the_same_file_separately(site: Site, tus: Tus) -> None:
    tus.send(CONTENT)
    theirs = Tus(site.other_team("globex"), "/api/v1/teams/globex/uploads")
    theirs.send(CONTENT)
    assert count_of_stored(site) == 2
    assert theirs.client.get("/api/v1/teams/globex").json()["storage"]["used_bytes"] == len(CONTENT)


@also_in_bucket
def test_a_file_and_its_object_are_deleted_with_the_last_user(
    site: Site, tus: Tus, team_id: UUID, exact: Exact
) -> None:
    one = take(site, team_id, tus.send(CONTENT))
    assert tus.client.get(tus.path).json() == [], "a used upload is no longer an upload"
    two = take(site, team_id, tus.send(CONTENT))
    leave(site, team_id, one)
    assert used_bytes(site) == len(CONTENT) and exact()
    leave(site, team_id, two)
    assert used_bytes(site) == 0 and count_of_stored(site) == 0 and exact()
    delete_queued_bytes(site.app.state.database, site.app.state.store)
    assert files_in_store(site) == 0


def test_a_file_of_an_upload_is_in_use(site: Site, tus: Tus, team_id: UUID, exact: Exact) -> None:
    user = take(site, team_id, tus.send(CONTENT))
    waiting = tus.send(CONTENT)
    leave(site, team_id, user)
    assert count_of_stored(site) == 1 and exact()
    take(site, team_id, waiting)


def test_unusable_uploads_are_named_with_the_reason(site: Site, tus: Tus, team_id: UUID) -> None:
    complete = tus.send(CONTENT)
    url = tus.begin(100, "half.txt")
    tus.add(url, 0, b"x" * 40)
    half, unknown = url.rsplit("/", 1)[-1], public_id("up", new_id())
    theirs = Tus(site.other_team("globex"), "/api/v1/teams/globex/uploads").send(CONTENT)
    with pytest.raises(Invalid) as refused, site.app.state.database.write() as session:
        complete_uploads(session, team_id, [complete, half, unknown, theirs, "nonsense", complete])
    messages = {problem.value: problem.message for problem in refused.value.errors}
    assert set(messages) == {complete, half, unknown, theirs, "nonsense"}
    assert "40 of 100 bytes" in messages[half] and "'half.txt'" in messages[half]
    assert "There is no upload" in messages[theirs] and "twice" in messages[complete]
    assert {problem.field for problem in refused.value.errors} == {"uploads"}
    with site.app.state.database.write() as session:
        (file,) = complete_uploads(session, team_id, [complete])
    assert (file.name, file.bytes, file.digest) == (
        "a.txt",
        len(CONTENT),
        hashlib.sha256(CONTENT).hexdigest(),
    )
    assert site.app.state.store.read(file.object_key) == CONTENT


def test_uploads_expire_and_free_their_storage(site: Site, tus: Tus, team_id: UUID, exact: Exact) -> None:
    kept = tus.begin(50)
    half = tus.begin(100)
    tus.add(half, 0, b"x" * 40)
    unused = f"{tus.path}/{tus.send(CONTENT)}"
    tus.send(b"used by a dataset")
    used = take(site, team_id, tus.send(b"used by a dataset"))
    with site.app.state.database.write() as session:
        over = now() - timedelta(seconds=1)
        session.execute(update(Upload).where(Upload.bytes != 50).values(expires=over))
    for url in (half, unused):
        assert tus.client.head(url, headers=TUS).status_code == 410
        assert tus.add(url, 40, b"y").status_code == 410
    assert [item["bytes"] for item in tus.client.get(tus.path).json()] == [50]
    control_loop(site).run_round(sweep=True)
    assert tus.client.head(half, headers=TUS).status_code == 404
    assert used_bytes(site) == 50 + len(b"used by a dataset") and exact()
    assert site.app.state.store.list_partials() == [] and tus.offset(kept) == 0
    leave(site, team_id, used)
    control_loop(site).run_round(sweep=True)
    assert files_in_store(site) == 0


@pytest.mark.both_databases
def test_new_bytes_extend_an_upload_by_a_day(site: Site, tus: Tus) -> None:
    url = tus.begin(100)
    with site.app.state.database.write() as session:
        session.execute(update(Upload).values(expires=now() + timedelta(minutes=1)))
    tus.add(url, 0, b"x")
    with site.app.state.database.read() as session:
        assert session.scalars(select(Upload.expires)).one() > now() + timedelta(hours=23)


def test_the_sweep_keeps_uploads_in_progress(site: Site, tus: Tus) -> None:
    url = tus.begin(3)
    tus.add(url, 0, b"12")
    stray = site.app.state.store.partial_path(new_id())
    stray.write_bytes(b"left by a crash")
    control_loop(site).run_round(sweep=True)
    assert not stray.exists()
    assert tus.add(url, 2, b"3").status_code == 204


def test_an_upload_that_completes_right_before_its_object_is_deleted_is_refused(
    site: Site, tus: Tus, exact: Exact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_queue, "UPLOAD_LIFETIME", deletion_queue.KEEP_MARGIN / 2)
    url = tus.begin(3)
    response = tus.add(url, 0, b"123")
    assert (response.status_code, response.json()["code"]) == (409, "upload_too_slow")
    assert count_of_stored(site) == 0 and exact()


def test_bytes_that_the_disk_lost_end_the_upload_with_an_error(site: Site, tus: Tus, exact: Exact) -> None:
    url = tus.begin(10)
    tus.add(url, 0, b"12345")
    (upload_id,) = site.app.state.store.list_partials()
    site.app.state.store.partial_path(upload_id).write_bytes(b"123")
    response = tus.add(url, 5, b"67890")
    assert (response.status_code, response.json()["code"]) == (410, "upload_lost")
    assert tus.client.head(url, headers=TUS).status_code == 404 and exact()


@pytest.fixture
def patient_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, writers that follow each other without a pause keep another one waiting for long."""
    monkeypatch.setattr(db, "BUSY_TIMEOUT_SECONDS", 60)


@pytest.mark.slow(target="databases")
@pytest.mark.both_databases
def test_completing_and_deleting_concurrently_keeps_the_storage_count_exact(
    patient_database: None, site: Site, tus: Tus, team_id: UUID, exact: Exact
) -> None:
    """The same file arrives while its last user is deleted."""

    def add_and_delete(number: int) -> None:
        for _ in range(8):
            leave(site, team_id, take(site, team_id, tus.send(CONTENT, f"{number}.txt")))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_and_delete, range(4)))
    assert used_bytes(site) == 0 and count_of_stored(site) == 0 and exact()
    delete_queued_bytes(site.app.state.database, site.app.state.store)
    assert files_in_store(site) == 0


@pytest.mark.both_databases
def test_concurrent_uploads_stay_within_the_limit(
    patient_database: None, site: Site, tus: Tus, exact: Exact
) -> None:
    site.admin.put(f"{site.path}/storage", json={"limit_bytes": 1_000})
    with ThreadPoolExecutor(8) as pool:
        responses = list(pool.map(lambda _: tus.announce(150).status_code, range(16)))
    assert sorted(responses) == [201] * 6 + [403] * 10 and used_bytes(site) == 900 and exact()


def test_one_persons_upload_limit_leaves_room_for_others(
    site: Site, tus: Tus, exact: Exact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwright_backend.uploads.service.MAX_UPLOADS_PER_PERSON", 2)
    url = tus.begin(10)
    tus.begin(10)
    refused = tus.announce(10)
    assert (refused.status_code, refused.json()["code"]) == (409, "too_many_uploads") and exact()
    assert Tus(site.member("editor"), tus.path).announce(10).status_code == 201
    assert tus.drop(url).status_code == 204 and tus.announce(10).status_code == 201


@pytest.mark.both_databases
def test_the_storage_check_detects_one_byte_too_many(site: Site, tus: Tus) -> None:
    tus.begin(10)
    with site.app.state.database.write() as session:
        session.execute(update(Upload).values(bytes=11))
    assert not storage_is_exact(site)


def test_deleting_an_unknown_file_does_nothing(site: Site, team_id: UUID) -> None:
    with site.app.state.database.write() as session:
        delete_unused_files(session, team_id, [new_id()])
    with pytest.raises(AppError), site.app.state.database.write() as session:
        complete_uploads(session, team_id, [""])
