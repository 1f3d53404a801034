"""A backup of a running platform restores to the same rows and objects, and anything else is refused."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import MetaData, select, update
from typer.testing import CliRunner

from tests.agent.machine import wait_for
from tests.backend.conftest import SECRET, also_in_bucket, only_in_bucket
from tests.backend.scripted_agent import Scene
from trainwright_backend.cli import app as commands
from trainwright_backend.control.queued_deletions import delete_queued_bytes
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.deletion_queue import DeletionHold, QueuedDeletion, queue_deletion
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.object_store import ObjectDamagedError, ObjectStore, StoredObject
from trainwright_backend.local.data_folder import DataFolder
from trainwright_backend.maintenance import backup as backup_module
from trainwright_backend.maintenance.backup import (
    BackupError,
    create_backup,
    open_place,
    read_manifest,
    restore_backup,
    verify_backup,
)
from trainwright_backend.maintenance.database_copy import is_empty
from trainwright_backend.migrations.run import migrate

Restored = tuple[Database, ObjectStore]


def silent(message: str) -> None:
    """The progress of a command."""


@pytest.fixture
def backup(scene: Scene, tmp_path: Path) -> ObjectStore:
    """A backup of a platform with a run and its checkpoints."""
    scene.start().finish(10)
    place = open_place(None, str(tmp_path / "backup"), create=True)
    create_backup(scene.site.app.state.database, scene.site.app.state.store, place, SECRET, silent)
    return place


@pytest.fixture
def empty(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Restored]:
    """A database without tables, of the same kind as the test's, and a store without objects."""
    fresh = f"sqlite:///{tmp_path / 'restored.sqlite3'}"
    if database_url.startswith("postgresql"):
        fresh = request.getfixturevalue("fresh_postgres_database")
    database = Database(fresh)
    yield database, LocalStore(tmp_path / "restored", SECRET)
    database.dispose()


def rows_of(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """All rows, by table."""
    tables = MetaData()
    with database.read() as session:
        tables.reflect(session.connection())
        return {
            table.name: sorted(map(tuple, session.execute(select(table))), key=repr)
            for table in tables.sorted_tables
            if table.name not in ("deletion_hold", "completed_backup")
        }


def contents_of(store: ObjectStore) -> dict[str, bytes]:
    return {key: store.read(key) for key in store.list_prefix("")}


@also_in_bucket
@pytest.mark.both_databases
def test_a_restored_platform_has_the_same_rows_and_objects(
    scene: Scene, backup: ObjectStore, empty: Restored
) -> None:
    database, store = empty
    restore_backup(backup, database, store, SECRET, silent)
    rows = rows_of(database)
    assert rows == rows_of(scene.site.app.state.database)
    assert rows["run"] and rows["checkpoint"] and rows["run_event"]
    assert contents_of(store) == contents_of(scene.site.app.state.store) != {}
    assert list(verify_backup(backup)) == []


@only_in_bucket
def test_a_backup_can_be_in_a_bucket(scene: Scene, empty: Restored) -> None:
    app = scene.site.app
    bucket = app.state.settings.object_store_url.split("/")[2]
    place = open_place(app.state.settings, f"s3://{bucket}/backups")
    for _ in range(2):
        create_backup(app.state.database, app.state.store, place, SECRET, silent)
    assert list(verify_backup(place)) == []
    restore_backup(place, *empty, SECRET, silent)
    assert contents_of(empty[1]) == contents_of(app.state.store) != {}


@pytest.mark.slow(target="databases")
def test_a_second_backup_to_the_same_place_copies_new_objects_and_removes_deleted_ones(
    scene: Scene, backup: ObjectStore, tmp_path: Path
) -> None:
    store: ObjectStore = scene.site.app.state.store
    first = read_manifest(backup)
    kept, gone = list(first.objects)[:2]
    before = (tmp_path / "backup" / "objects" / kept).stat().st_mtime_ns
    store.delete(gone)
    store.write("new/object", b"new")
    create_backup(scene.site.app.state.database, store, backup, SECRET, silent)
    second = read_manifest(backup)
    assert set(second.objects) == set(first.objects) - {gone} | {"new/object"}
    assert (tmp_path / "backup" / "objects" / kept).stat().st_mtime_ns == before, "it was not copied again"
    assert backup.stat(f"objects/{gone}") is None and list(verify_backup(backup)) == []
    assert not set(first.files) & set(backup.list_prefix("database"))


@pytest.mark.parametrize("other", ["photo.jpg", "objects/photo.jpg", "manifest.json"])
def test_a_place_with_other_files_is_refused_and_keeps_them(scene: Scene, tmp_path: Path, other: str) -> None:
    place = open_place(None, str(tmp_path / "share"), create=True)
    place.write(other, b"mine")
    app = scene.site.app
    with pytest.raises(
        BackupError, match=r"has photo|has objects/photo|manifest\.json is that of something else"
    ):
        create_backup(app.state.database, app.state.store, place, SECRET, silent)
    assert contents_of(place) == {other: b"mine"}


def test_a_later_backup_leaves_files_beside_the_former_one_alone(scene: Scene, backup: ObjectStore) -> None:
    backup.write("notes/mine.txt", b"mine")
    create_backup(scene.site.app.state.database, scene.site.app.state.store, backup, SECRET, silent)
    assert backup.read("notes/mine.txt") == b"mine" and list(verify_backup(backup)) == []


def test_an_interrupted_first_backup_can_be_repeated(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.start().finish(10)
    database, store = scene.site.app.state.database, scene.site.app.state.store
    place = open_place(None, str(tmp_path / "backup"), create=True)
    copy, copied = backup_module.copy_object, list[str]()

    def interrupted(source: ObjectStore, key: str, target: ObjectStore, target_key: str) -> StoredObject:
        if copied:
            raise KeyboardInterrupt
        copied.append(target_key)
        return copy(source, key, target, target_key)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(backup_module, "copy_object", interrupted)
        create_backup(database, store, place, SECRET, silent)
    assert place.stat(copied[0]) is not None and place.stat("manifest.json") is None
    create_backup(database, store, place, SECRET, silent)
    assert list(verify_backup(place)) == [] and place.stat("unfinished.txt") is None


def test_deletions_wait_until_a_backup_has_been_copied(scene: Scene, tmp_path: Path) -> None:
    database, store = scene.site.app.state.database, scene.site.app.state.store
    store.write("doomed/object", b"x")

    def delete_meanwhile(message: str) -> None:
        """Once the database has been copied, the object is deleted."""
        if message.startswith("database"):
            with database.write() as session:
                queue_deletion(session, "doomed")
            delete_queued_bytes(database, store)

    place = open_place(None, str(tmp_path / "backup"), create=True)
    manifest = create_backup(database, store, place, SECRET, delete_meanwhile)
    assert "doomed/object" in manifest.objects
    delete_queued_bytes(database, store)
    assert store.stat("doomed/object") is None


@pytest.mark.parametrize("step", ["dump_database", "copy_object"])
def test_the_hold_on_deletions_is_renewed_within_a_long_step(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    database, store = scene.site.app.state.database, scene.site.app.state.store
    store.write("large", b"x")
    monkeypatch.setattr(backup_module, "HOLD_RENEWAL_SECONDS", 0.01)
    do_step: Callable[..., Any] = getattr(backup_module, step)

    def end_of_hold() -> datetime:
        with database.read() as session:
            return session.execute(select(DeletionHold)).scalar_one().until

    def long_step(*arguments: Any) -> Any:
        at_first = end_of_hold()
        wait_for(lambda: end_of_hold() > at_first, "the renewal of the hold")
        return do_step(*arguments)

    monkeypatch.setattr(backup_module, step, long_step)
    create_backup(database, store, LocalStore(tmp_path / "backup", SECRET), SECRET, silent)
    with database.read() as session:
        assert session.scalars(select(DeletionHold)).all() == []


def test_a_backup_whose_hold_on_deletions_ended_is_not_completed(scene: Scene, backup: ObjectStore) -> None:
    database, store = scene.site.app.state.database, scene.site.app.state.store
    former = backup.read("manifest.json")

    def end_hold(message: str) -> None:
        if message.startswith("database"):
            with database.write() as session:
                session.execute(update(DeletionHold).values(until=now()))

    with pytest.raises(BackupError, match="some of them may have been deleted"):
        create_backup(database, store, backup, SECRET, end_hold)
    assert backup.read("manifest.json") == former
    assert list(verify_backup(backup)) == []
    with database.read() as session:
        assert session.scalars(select(DeletionHold)).all() == []


@pytest.mark.parametrize("damage", ["flipped", "missing", "database"])
def test_a_damaged_backup_is_reported_and_not_restored(
    backup: ObjectStore, empty: Restored, tmp_path: Path, damage: str
) -> None:
    manifest = read_manifest(backup)
    if damage == "database":
        name = next(
            key for key, content in manifest.files.items() if content.bytes
        )  # a table may have no rows
    else:
        name = f"objects/{next(iter(manifest.objects))}"
    file = tmp_path / "backup" / name
    if damage == "missing":
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    [problem] = verify_backup(backup)
    assert name in problem
    with pytest.raises(BackupError if damage == "missing" else ObjectDamagedError, match=name):
        restore_backup(backup, *empty, SECRET, silent)
    assert is_empty(empty[0])


@pytest.mark.both_databases
def test_a_backup_of_other_rows_is_refused_with_their_numbers(backup: ObjectStore, empty: Restored) -> None:
    manifest = json.loads(backup.read("manifest.json"))
    [run] = [table for table in manifest["database"]["tables"] if table["name"] == "run"]
    run["rows"] = 7
    backup.write("manifest.json", json.dumps(manifest).encode())
    with pytest.raises(BackupError, match=r"rows of run: 1 instead of 7\). Delete it, and restore"):
        restore_backup(backup, *empty, SECRET, silent)


def newer(manifest: dict[str, Any]) -> None:
    manifest["database"]["revision"] = "9999"
    manifest["version"] = "7.0"


def other_engine(manifest: dict[str, Any]) -> None:
    manifest["database"]["engine"] = "oracle"


@pytest.mark.slow(target="databases")
@pytest.mark.parametrize(
    ("change", "words"), [(newer, "Version 7.0 made this backup"), (other_engine, "The backup is of oracle")]
)
def test_a_backup_that_does_not_fit_is_refused(
    backup: ObjectStore, empty: Restored, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    manifest = json.loads(backup.read("manifest.json"))
    change(manifest)
    backup.write("manifest.json", json.dumps(manifest).encode())
    with pytest.raises(BackupError, match=words):
        restore_backup(backup, *empty, SECRET, silent)


def test_restoring_requires_an_empty_place_and_the_same_key(
    scene: Scene, backup: ObjectStore, empty: Restored
) -> None:
    database, store = empty
    with pytest.raises(BackupError, match="SECRET_KEY is not that of the backup"):
        restore_backup(backup, database, store, SecretStr("another key that is long enough!"), silent)
    with pytest.raises(BackupError, match="database is not empty"):
        restore_backup(backup, scene.site.app.state.database, store, SECRET, silent)
    store.write("a/stray", b"x")
    with pytest.raises(BackupError, match="a/stray"):
        restore_backup(backup, database, store, SECRET, silent)
    store.delete("a/stray")
    backup.delete("manifest.json")
    with pytest.raises(BackupError, match="no complete backup"):
        restore_backup(backup, database, store, SECRET, silent)


def test_the_commands_back_up_a_data_folder_and_restore_it_with_its_key(tmp_path: Path) -> None:
    folder = DataFolder.acquire(tmp_path / "data")
    key = folder.secret("secret_key")
    database = Database(f"sqlite:///{folder.path / 'trainwright.sqlite3'}")
    migrate(database)
    with database.write() as session:
        session.add(QueuedDeletion(prefix="kept", delete_at=now(), final_delete_at=now()))
    LocalStore(folder.path / "objects", SECRET).write("team/object", b"content")
    place = str(tmp_path / "backup")

    assert run("backup", place, "--data", str(folder.path)) == 0, "the platform has locked its folder"
    assert run("verify", place) == 0
    assert run("restore", place, "--data", str(folder.path)) == 1, "it is in use"
    restored = tmp_path / "restored"
    assert run("restore", place, "--data", str(restored)) == 0
    assert json.loads((restored / "secrets.json").read_text())["secret_key"] == key
    assert (restored / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert (restored / "objects/team/object").read_bytes() == b"content"
    assert rows_of(Database(f"sqlite:///{restored / 'trainwright.sqlite3'}")) == rows_of(database)
    (tmp_path / "backup/objects/team/object").unlink()
    again = CliRunner().invoke(commands, ["restore", place, "--data", str(tmp_path / "again")])
    assert again.exit_code == 1 and "objects/team/object is missing" in again.output
    (tmp_path / "backup/objects/team/object").write_bytes(b"damaged")
    assert run("verify", place) == 1
    assert run("verify", str(tmp_path / "nowhere")) == 1


def run(*words: str) -> int:
    return CliRunner().invoke(commands, words).exit_code


def test_a_backup_without_a_secret_key_says_how_to_restore_it(backup: ObjectStore, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        commands, ["restore", str(tmp_path / "backup"), "--data", str(tmp_path / "restored")]
    )
    assert done.exit_code == 1
    assert "The backup has no secret key" in done.output
    assert "settings in the environment instead of --data" in " ".join(done.output.split())
