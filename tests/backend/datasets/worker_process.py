"""Workers that can be killed: for each input line, a fork of this process works until no job is left.

    python worker_process.py <database url> <object folder>

Leases are short and chunks small. The parent has imported what a worker needs and opened nothing, so workers
start immediately. It prints each worker's process id, and exits at the end of its input.
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
from trainwright.contracts.curation import ReadSpec
from trainwright.prepare import chunks
from trainwright.prepare.documents import Source
from trainwright.prepare.sniff import sniff
from trainwright_backend.core.broker import die_with_parent
from trainwright_backend.core.db import Database
from trainwright_backend.core.local_store import LocalStore
from trainwright_backend.core.message_queue import Enqueuer
from trainwright_backend.core.settings import Settings
from trainwright_backend.core.sse import Topics
from trainwright_backend.datasets.job_queue import JobKind
from trainwright_backend.datasets.jobs import curation, leases, outcomes, parsing, preparation_jobs
from trainwright_backend.datasets.jobs.dispatch import next_job
from trainwright_backend.datasets.jobs.runner import run_and_record_failure
from trainwright_backend.datasets.tables import DatasetVersion, ParsedFile, Preparation

CHUNK_DOCUMENTS = 20
SECRET = SecretStr("the secret of these tests, long enough")
ENDED = {VersionState.READY, VersionState.FAILED, PreparationState.READY, PreparationState.FAILED}


def main(url: str, objects: str) -> None:
    chunks.CHUNK_DOCUMENTS = CHUNK_DOCUMENTS
    leases.LEASE_DURATION = timedelta(seconds=0.2)
    leases.RENEWAL_SECONDS = 0.05
    for module in (leases, outcomes, preparation_jobs, parsing, curation):
        for name in ("MAX_EXPIRED_LEASES", "MAX_FAILURES"):  # many consecutive kills are expected here
            if hasattr(module, name):
                setattr(module, name, 1_000)
    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for the killed ones
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
    """Write a chunk, so that one-time initialization is done before the forks."""
    with TemporaryDirectory() as folder:
        source = Source("a.txt", Path(folder) / "a.txt")
        source.path.write_text("some prose")
        assert [
            piece.documents for piece in chunks.write_chunks(source, sniff(source), ReadSpec(), Path(folder))
        ] == [1]


def work_on(url: str, objects: str) -> None:
    settings = Settings(secret_key=SECRET, database_url=url, public_url="http://localhost")
    database = Database(url, {"enqueuer": Enqueuer(settings), "topics": Topics()})
    store = LocalStore(Path(objects), SECRET)
    while not run_jobs(database, store):
        time.sleep(0.02)


def run_jobs(database: Database, store: LocalStore) -> bool:
    """Run a job of each row. Returns whether all had finished already."""
    with database.read() as session:
        rows = [
            (kind, row.id, row.state)
            for kind, table in (
                (JobKind.PARSE, ParsedFile),
                (JobKind.CURATE, DatasetVersion),
                (JobKind.PREPARE, Preparation),
            )
            for row in session.execute(select(table.id, table.state)).all()
        ]
    for kind, row_id, state in rows:
        if state not in ENDED:
            with database.write() as session:
                job = next_job(session, kind, row_id)
            if job is not None:
                run_and_record_failure(database, store, job)
    return all(state in ENDED for _, _, state in rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
