"""Handing out a checkpoint: links to its files, or one archive of them, and a mark of how long somebody may be reading.

The mark is what keeps a retention from deleting what is on its way to a person. It is written before the first link is
signed, and again and again while an archive is sent, which may take longer than a link is good.
"""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import UUID

from sqlalchemy import or_, update

from trainwright.contracts.api.checkpoints import CheckpointFile
from trainwright_backend.checkpoints.service import get_checkpoint
from trainwright_backend.checkpoints.tables import Checkpoint
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.doomed import LINK_SECONDS
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.runs.service import get_run
from trainwright_backend.runs.tables import Run

SLACK_SECONDS = 60.0
"""A mark is written so much later than it has to be, and then not again for as long."""

RENEWED_EVERY_SECONDS = 600.0


def hand_out(database: Database, team_id: UUID, run_id: str, checkpoint_id: str) -> tuple[Run, Checkpoint]:
    """A checkpoint of the team's run, marked as on its way to somebody.

    Raises:
        NotFound: there is none with this id, any more perhaps.
    """
    with database.read() as session:
        found = get_checkpoint(session, get_run(session, team_id, run_id), checkpoint_id).id
    mark(database, found)
    with database.read() as session:
        run = get_run(session, team_id, run_id)
        return run, get_checkpoint(session, run, checkpoint_id)


def mark(database: Database, checkpoint_id: UUID) -> None:
    """Note that links that are signed from now on until a little later are good; nothing where it was deleted."""
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


def list_files(store: LocalStore, checkpoint: Checkpoint) -> list[CheckpointFile]:
    """Its files with links that are good for an hour."""
    return [
        CheckpointFile(**file, url=store.sign("GET", f"{checkpoint.prefix}/{file['name']}", LINK_SECONDS))
        for file in checkpoint.files
    ]


def marked_while_sent(
    content: Iterator[bytes],
    database: Database,
    checkpoint_id: UUID,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """``content``, while the checkpoint stays marked as on its way."""
    due = clock() + RENEWED_EVERY_SECONDS
    for data in content:
        if clock() >= due:
            mark(database, checkpoint_id)
            due = clock() + RENEWED_EVERY_SECONDS
        yield data
