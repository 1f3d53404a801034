"""Workers that can be killed: for each line that comes in, a fork of this process works until nothing is left to do.

    python worker_process.py <database url> <object folder>

Leases and pieces are small. The parent has imported what a worker needs and opened nothing, so that a worker begins at
once; it says each worker's process id, and ends with its input.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import SecretStr
from sqlalchemy import select

from trainwright.contracts.api.datasets import PreparationState, VersionState
from trainwright.contracts.recipe import ReadSpec
from trainwright.prepare import pieces
from trainwright.prepare.documents import Source
from trainwright.prepare.sniff import sniff
from trainwright_backend.core.broker import die_with_parent
from trainwright_backend.core.db import Database
from trainwright_backend.core.enqueue import Enqueuer
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.core.stream import Topics
from trainwright_backend.datasets import leases, steps, work_preparations, work_readings, work_versions
from trainwright_backend.datasets.messages import Work
from trainwright_backend.datasets.tables import DatasetVersion, Preparation, Reading
from trainwright_backend.datasets.tasks import make_step

PIECE_DOCUMENTS = 20
SECRET = SecretStr("the secret of these tests, long enough")
ENDED = {VersionState.READY, VersionState.FAILED, PreparationState.READY, PreparationState.FAILED}


def main(url: str, objects: str) -> None:
    pieces.PIECE_DOCUMENTS = PIECE_DOCUMENTS
    leases.LEASE = timedelta(seconds=0.2)
    leases.RENEWAL_SECONDS = 0.05
    for module in (leases, steps, work_preparations, work_readings, work_versions):
        for name in ("MOST_LOST_LEASES", "MOST_FAILURES"):  # so many kills in a row mean nothing here
            if hasattr(module, name):
                setattr(module, name, 1_000)
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the killed ones
    arm = die_with_parent(signal.SIGKILL)
    for _ in sys.stdin:
        worker = os.fork()
        if not worker:
            if arm is not None:
                arm()
            work_on(url, objects)
            os._exit(0)
        print(worker, flush=True)


def warm_up() -> None:
    """Make a piece, so that what the first one of a process has to prepare is done before the forks."""
    with TemporaryDirectory() as folder:
        source = Source("a.txt", Path(folder) / "a.txt")
        source.path.write_text("some prose")
        assert [
            piece.documents for piece in pieces.write_pieces(source, sniff(source), ReadSpec(), Path(folder))
        ] == [1]


def work_on(url: str, objects: str) -> None:
    settings = Settings(secret_key=SECRET, database_url=url, public_url="http://localhost")
    database = Database(url, {"enqueuer": Enqueuer(settings), "topics": Topics()})
    store = LocalStore(Path(objects), SECRET)
    while not make_steps(database, store):
        time.sleep(0.02)


def make_steps(database: Database, store: LocalStore) -> bool:
    """Make a step of each row; tells whether all had ended before."""
    with database.read() as session:
        rows = [
            (kind, row.id, row.state)
            for kind, table in (
                (Work.READ, Reading),
                (Work.SURVEY, DatasetVersion),
                (Work.PREPARE, Preparation),
            )
            for row in session.execute(select(table.id, table.state)).all()
        ]
    for kind, row_id, state in rows:
        if state not in ENDED:
            make_step(database, store, kind, row_id)
    return all(state in ENDED for _, _, state in rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
