"""Deleting from the object store what the deletion queue lists."""

from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import delete, select

from trainwright_backend.control.run_step import run_step
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.deletion_queue import QueuedDeletion, is_held
from trainwright_backend.core.object_store import ObjectStore

REPEAT_SECONDS = 300.0


def delete_queued_bytes(database: Database, store: ObjectStore) -> None:
    """Delete the folders that are due, repeatedly until no signed link to them is valid."""
    with database.read() as session:
        if is_held(session):
            return
        due = session.scalars(select(QueuedDeletion).where(QueuedDeletion.delete_at <= now())).all()
        folders = [(row.prefix, row.final_delete_at) for row in due]
    for prefix, final_delete_at in folders:
        run_step(partial(_delete_folder, database, store, prefix, final_delete_at), folder=prefix)


def _delete_folder(database: Database, store: ObjectStore, prefix: str, final_delete_at: datetime) -> None:
    with suppress(FileNotFoundError):
        store.delete_prefix(prefix)
    with database.write() as session:
        if now() >= final_delete_at:
            session.execute(delete(QueuedDeletion).where(QueuedDeletion.prefix == prefix))
        else:
            again = min(now() + timedelta(seconds=REPEAT_SECONDS), final_delete_at)
            session.get_one(QueuedDeletion, prefix).delete_at = again
