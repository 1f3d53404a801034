"""Backups: the database, the objects and a manifest of their digests, in a folder or a bucket.

A backup is made while the platform works. First the database is copied, in one consistent state; then the objects, which
are written before the rows that name them. A hold on deletions keeps what those rows name. The manifest is written last and
makes the backup complete, so an interrupted one leaves the one before. Objects that a former backup copied to the same place
are not copied again. A backup is written to an empty place, or to that of a former one.
"""

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from uuid import UUID, uuid4

from pydantic import SecretStr, ValidationError
from sqlalchemy import Update, delete, update

from trainwright.contracts.base import Envelope, problems
from trainwright_backend.core.completed_backups import record_backup
from trainwright_backend.core.db import Database, Write, now
from trainwright_backend.core.deletion_queue import DeletionHold
from trainwright_backend.core.errors import Busy
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.object_store import ObjectDamagedError, ObjectStore, StoredObject
from trainwright_backend.core.open_store import open_store
from trainwright_backend.core.settings import Settings
from trainwright_backend.maintenance.database_copy import DatabaseCopy, dump_database, is_empty, load_database
from trainwright_backend.maintenance.transfer import copy_object
from trainwright_backend.migrations.run import is_known

FORMAT = 1
MANIFEST = "manifest.json"
SECRETS = "secrets.json"
UNFINISHED = "unfinished.txt"
"""Marks a place as that of a first backup that is not complete yet."""

HOLD = timedelta(hours=1)
HOLD_RENEWAL_SECONDS = 60.0

log = logging.getLogger(__name__)

Tell = Callable[[str], None]


class BackupError(Exception):
    """The backup cannot be made or restored; the message says what to do."""


class Content(Envelope):
    """Size and digest of a file or an object."""

    bytes: int
    digest: str


class BackupManifest(Envelope):
    """What a backup has."""

    format: int
    version: str
    created: datetime
    key_check: str
    """Tells whether a secret key is that of the backup, and nothing else about it."""

    database: DatabaseCopy
    files: dict[str, Content]
    """The copy of the database, by key in the backup."""

    objects: dict[str, Content]
    """By key in the object store; in the backup below `objects/`."""


def create_backup(
    database: Database,
    store: ObjectStore,
    target: ObjectStore,
    secret_key: SecretStr,
    tell: Tell,
    secrets: bytes | None = None,
) -> BackupManifest:
    """Write a backup to ``target``, where a former one may be.

    Args:
        secrets: content of the secrets file of a data folder, which is backed up too.

    Raises:
        BackupError: ``target`` has other content, and nothing is written or deleted; or the hold on deletions ended
            before everything was copied, and the former backup stays.
    """
    started = now()
    known = _begin(target)
    with TemporaryDirectory() as name, _deletions_held(database):
        folder = Path(name)
        copied = dump_database(database, folder)
        prefix = f"database/{uuid4().hex}"
        files = {
            f"{prefix}/{file.name}": target.put_file(f"{prefix}/{file.name}", file)
            for file in folder.iterdir()
        }
        tell(f"database copied: {sum(table.rows for table in copied.tables):,} rows")
        objects = {}
        for key in store.list_prefix(""):
            if (content := _back_up_object(store, target, key, known.get(key))) is not None:
                objects[key] = content
    manifest = BackupManifest(
        format=FORMAT,
        version=version("trainwright"),
        created=now(),
        key_check=_key_check(secret_key),
        database=copied,
        files={key: Content(bytes=stored.bytes, digest=stored.digest) for key, stored in files.items()},
        objects=objects,
    )
    if secrets is not None:
        target.write(SECRETS, secrets)
    target.write(MANIFEST, manifest.model_dump_json(indent=1).encode())
    kept = {*files, *(f"objects/{key}" for key in objects)}
    former = [*target.list_prefix("database"), *target.list_prefix("objects")]
    for key in (
        UNFINISHED,
        *([SECRETS] if secrets is None else []),
        *(key for key in former if key not in kept),
    ):
        target.delete(key)
    with database.write() as session:
        record_backup(session, started)
    tell(f"objects copied: {len(objects):,}")
    return manifest


def open_place(settings: Settings | None, place: str, *, create: bool = False) -> ObjectStore:
    """The folder or bucket of a backup.

    Args:
        settings: for a bucket; those of the environment when None.
        create: make the folder if it is missing.

    Raises:
        BackupError: there is no such folder, or no bucket can have this name.
    """
    if not place.startswith("s3://"):
        if create:
            Path(place).mkdir(parents=True, exist_ok=True, mode=0o700)
        if not Path(place).is_dir():
            raise BackupError(f"There is no folder {place}.")
        return LocalStore(Path(place), SecretStr(""))
    given = {} if settings is None else settings.model_dump()
    try:
        return open_store(Settings(**given | {"object_store_url": place}))
    except ValidationError as error:
        raise BackupError("\n".join(problem.message for problem in problems(error, Settings))) from None


def read_manifest(source: ObjectStore) -> BackupManifest:
    """The manifest of a backup.

    Raises:
        BackupError: there is none, or a newer version wrote it.
    """
    try:
        manifest = BackupManifest.model_validate_json(source.read(MANIFEST))
    except FileNotFoundError:
        raise BackupError("There is no complete backup here: manifest.json is missing.") from None
    except ValidationError:
        raise BackupError("There is no backup here: manifest.json is that of something else.") from None
    if manifest.format > FORMAT or not is_known(manifest.database.revision):
        raise BackupError(
            f"Version {manifest.version} made this backup, with tables of revision {manifest.database.revision}, which "
            f"version {version('trainwright')} does not know. Install that version or a newer one."
        )
    return manifest


def read_secrets(source: ObjectStore) -> str:
    """The secrets file of the data folder that was backed up.

    Raises:
        BackupError: the backup has none.
    """
    if source.stat(SECRETS) is None:
        raise BackupError(
            "The backup has no secret key, because its server had the settings in its environment. "
            "Restore it with these settings in the environment instead of --data."
        )
    return source.read(SECRETS).decode()


def verify_backup(source: ObjectStore) -> Iterator[str]:
    """Read the entire backup; yields a sentence for each file that is missing or damaged."""
    manifest = read_manifest(source)
    for key, content in _all_contents(manifest):
        found, size = hashlib.sha256(), 0
        try:
            for block in source.open_read(key):
                found.update(block)
                size += len(block)
        except FileNotFoundError:
            yield f"{key} is missing."
            continue
        if (size, found.hexdigest()) != (content.bytes, content.digest):
            yield f"{key} is damaged: it has other bytes than those that were backed up."


def restore_backup(
    source: ObjectStore, database: Database, store: ObjectStore, secret_key: SecretStr, tell: Tell
) -> BackupManifest:
    """Restore a backup into an empty database and an empty object store. An interrupted one can be repeated.

    Raises:
        BackupError: they are not empty, or do not fit the backup, or something is missing from it.
        ObjectDamagedError: something in the backup is damaged; the database is still empty.
    """
    manifest = read_manifest(source)
    _check_place(manifest, database, store, secret_key)
    for key, content in manifest.objects.items():
        _restore_object(source, store, key, content)
    tell(f"objects restored: {len(manifest.objects):,}")
    with TemporaryDirectory() as name:
        for key, content in manifest.files.items():
            data = Path(name, key.rpartition("/")[2])
            sha = hashlib.sha256()
            with data.open("wb") as file:
                for block in _blocks_of(source, key):
                    sha.update(block)
                    file.write(block)
            if sha.hexdigest() != content.digest:
                raise ObjectDamagedError(key, content.digest, sha.hexdigest())
        try:
            load_database(database, manifest.database, Path(name))
        except RuntimeError as error:
            raise BackupError(
                f"The database was not restored: {error}. Delete it, and restore the backup into a new one. If that fails "
                "too, restore another backup."
            ) from error
    with database.write() as session:
        session.execute(delete(DeletionHold))  # that of the backup itself
    tell(f"database restored: {sum(table.rows for table in manifest.database.tables):,} rows")
    return manifest


def _begin(target: ObjectStore) -> dict[str, Content]:
    """Mark an empty place as that of a backup; returns the objects of the former one there."""
    if target.stat(MANIFEST) is not None:
        return read_manifest(target).objects
    if target.stat(UNFINISHED) is None:
        if (other := next(iter(target.list_prefix("")), None)) is not None:
            raise BackupError(
                f"This place is not empty, and has no backup: it has {other}. "
                "Name an empty folder or a new one, or that of an earlier backup."
            )
        target.write(UNFINISHED, b"A backup is being written here, or was interrupted. Repeat it.\n")
    return {}


def _back_up_object(
    store: ObjectStore, target: ObjectStore, key: str, known: Content | None
) -> Content | None:
    """Copy one object; None if it was deleted meanwhile, which only happens to objects that no row names."""
    size = store.stat(key)
    if known is not None and known.bytes == size == target.stat(f"objects/{key}"):
        return known
    try:
        stored = copy_object(store, key, target, f"objects/{key}")
    except FileNotFoundError:
        return None
    return Content(bytes=stored.bytes, digest=stored.digest)


def _restore_object(source: ObjectStore, store: ObjectStore, key: str, content: Content) -> None:
    expected = StoredObject(content.bytes, content.digest)
    if store.stat(key) == content.bytes and store.content_of(key) == expected:
        return
    with store.open_write(key, expected) as copy:
        for block in _blocks_of(source, f"objects/{key}"):
            copy.write(block)
        if copy.digest != content.digest:
            raise ObjectDamagedError(f"objects/{key}", content.digest, copy.digest)
        copy.finish()


def _blocks_of(source: ObjectStore, key: str) -> Iterator[bytes]:
    try:
        yield from source.open_read(key)
    except FileNotFoundError:
        raise BackupError(
            f"The backup is damaged: {key} is missing. Restore another one. `trainwright-server verify` lists all that is "
            "missing or damaged."
        ) from None


def _check_place(
    manifest: BackupManifest, database: Database, store: ObjectStore, secret_key: SecretStr
) -> None:
    if manifest.database.engine != database.engine.dialect.name:
        raise BackupError(
            f"The backup is of {manifest.database.engine}, and TRAINWRIGHT_DATABASE_URL is of {database.engine.dialect.name}. "
            "Restore it into the same kind of database."
        )
    if not hmac.compare_digest(manifest.key_check, _key_check(secret_key)):
        raise BackupError(
            "TRAINWRIGHT_SECRET_KEY is not that of the backup: nobody could sign in. Set the key that the platform had."
        )
    if not is_empty(database):
        raise BackupError("The database is not empty. Restore into a new one.")
    if others := [key for key in store.list_prefix("") if key not in manifest.objects]:
        raise BackupError(f"The object store is not empty: it has {others[0]}. Restore into a new one.")


def _all_contents(manifest: BackupManifest) -> Iterator[tuple[str, Content]]:
    yield from manifest.files.items()
    for key, content in manifest.objects.items():
        yield f"objects/{key}", content


def _key_check(secret_key: SecretStr) -> str:
    return hmac.new(secret_key.get_secret_value().encode(), b"trainwright backup", "sha256").hexdigest()[:16]


@contextmanager
def _deletions_held(database: Database) -> Iterator[None]:
    """Hold deletions for the block. A thread renews the hold, so that neither a large object nor the dump outlasts it.

    Raises:
        BackupError: at the end of the block: the hold was not renewed in time, so objects may have been deleted.
    """
    hold_id, stopped = uuid4(), Event()
    with database.write() as session:
        session.add(DeletionHold(id=hold_id, until=now() + HOLD))
    renewal = Thread(target=_renew_hold, args=(database, hold_id, stopped), name="hold", daemon=True)
    renewal.start()
    try:
        yield
    finally:
        stopped.set()
        renewal.join()
        valid = database.retry_write(partial(_end_hold, hold_id))
    if not valid:
        raise BackupError(
            f"The platform's database accepted no renewal for {HOLD.total_seconds() / 3_600:g} h while objects were "
            "copied, so some of them may have been deleted. The backup was not completed. Repeat it."
        )


def _renew_hold(database: Database, hold_id: UUID, stopped: Event) -> None:
    """Extend the hold until ``stopped``. One that has ended is not extended: `_end_hold` then returns False."""
    while not stopped.wait(HOLD_RENEWAL_SECONDS):
        try:
            with database.write() as session:
                session.change(_valid_hold(hold_id).values(until=now() + HOLD))
        except Busy as error:
            log.warning("the hold on deletions could not be renewed, trying again: %s", error)


def _end_hold(hold_id: UUID, session: Write) -> bool:
    """Let deletions continue; returns whether the hold was valid until now."""
    was_valid = session.change(_valid_hold(hold_id).values(until=now())) == 1
    session.execute(delete(DeletionHold).where(DeletionHold.id == hold_id))
    return was_valid


def _valid_hold(hold_id: UUID) -> Update:
    return update(DeletionHold).where(DeletionHold.id == hold_id, DeletionHold.until > now())
