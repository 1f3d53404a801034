"""Downloading a checkpoint: links to its files or one archive, and a mark of how long a download may take.

The mark prevents retention from deleting a checkpoint during a download. It is written before the first link is
signed, and repeatedly while an archive is sent, which may take longer than a link is valid.
"""

import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import or_, update

from trainwright.contracts.api.checkpoints import CheckpointFile
from trainwright_backend.checkpoints.archive import Member, archive, archive_bytes
from trainwright_backend.checkpoints.service import get_checkpoint
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.deletion_queue import LINK_SECONDS
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.runs.service import get_run
from trainwright_backend.runs.tables import Run

SLACK_SECONDS = 60.0
"""A mark is set this much later than necessary, so that it is not written again for as long."""

RENEWED_EVERY_SECONDS = 600.0


class Archive(NamedTuple):
    """A checkpoint as one tar."""

    folder: str
    """Folder of its files, and the tar's name without ``.tar``."""

    size_bytes: int
    content: Iterator[bytes]


def open_download(
    database: Database, team_id: UUID, run_id: str, checkpoint_id: str
) -> tuple[Run, Checkpoint]:
    """A checkpoint of the team's run, marked as being downloaded.

    Raises:
        NotFound: there is none with this id, or it was deleted.
    """
    with database.read() as session:
        found = get_checkpoint(session, get_run(session, team_id, run_id), checkpoint_id).id
    mark(database, found)
    with database.read() as session:
        run = get_run(session, team_id, run_id)
        return run, get_checkpoint(session, run, checkpoint_id)


def mark(database: Database, checkpoint_id: UUID) -> None:
    """Extend the checkpoint's mark to the expiry of links signed now; does nothing if the checkpoint was deleted."""
    needed = now() + timedelta(seconds=LINK_SECONDS)
    with database.read() as session:
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None or (checkpoint.links_until is not None and checkpoint.links_until >= needed):
            return
    until = needed + timedelta(seconds=SLACK_SECONDS)
    with database.write() as session:
        shorter = or_(Checkpoint.links_until.is_(None), Checkpoint.links_until < until)
        session.change(
            update(Checkpoint).where(Checkpoint.id == checkpoint_id, shorter).values(links_until=until)
        )


def list_files(store: ObjectStore, checkpoint: Checkpoint) -> list[CheckpointFile]:
    """Its files with links that are valid for an hour."""
    return [
        CheckpointFile(**file, url=store.sign("GET", f"{checkpoint.prefix}/{file['name']}", LINK_SECONDS))
        for file in checkpoint.files
    ]


def open_archive(
    database: Database, store: ObjectStore, team_id: UUID, run_id: str, checkpoint_id: str
) -> Archive:
    """A checkpoint of the team's run as one tar, marked for as long as it is sent.

    Raises:
        NotFound: see `open_download`.
    """
    run, found = open_download(database, team_id, run_id, checkpoint_id)
    members = [Member(file["name"], file["bytes"], f"{found.prefix}/{file['name']}") for file in found.files]
    folder = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', run.name)}-step-{found.step}"
    content = archive(store, folder, members, found.created)
    return Archive(
        folder,
        archive_bytes(folder, members, found.created),
        marked_while_sending(content, database, found.id),
    )


def marked_while_sending(
    content: Iterator[bytes],
    database: Database,
    checkpoint_id: UUID,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """``content``; the checkpoint stays marked while it is consumed."""
    due = clock() + RENEWED_EVERY_SECONDS
    for data in content:
        if clock() >= due:
            mark(database, checkpoint_id)
            due = clock() + RENEWED_EVERY_SECONDS
        yield data
