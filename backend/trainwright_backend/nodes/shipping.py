"""What an agent ships for an attempt: events, logs, checkpoints; each guarded by the fence it speaks for.

Where the object store is asked, no transaction is open: such a message is a short transaction, the question, and a
second transaction that checks the guard again.
"""

from dataclasses import dataclass
from uuid import UUID

from trainwright.contracts.agent_protocol import Batch, CheckpointCommit, UploadLink, UploadRequest
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import EVENTS_NAME
from trainwright.contracts.run_spec import RunSpec
from trainwright_backend.checkpoints import service as checkpoints
from trainwright_backend.checkpoints.manifests import verify_upload
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.errors import AppError, Invalid
from trainwright_backend.core.storage import LocalStore
from trainwright_backend.metrics import service as metrics
from trainwright_backend.nodes.seats import check_newest, check_open, run_of_node, stale_fence
from trainwright_backend.runs import files
from trainwright_backend.runs.tables import Run
from trainwright_backend.runs.wake import wake_run

LARGEST_LOG_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class LogStretch:
    """Bytes of a log, and where they belong."""

    file: str
    attempt: int
    fence: int
    offset: int
    content: bytes


def store_batch(session: Write, node_id: UUID, run_id: str, batch: Batch) -> int:
    """Take a stretch of events; returns how many bytes are stored.

    Raises:
        Conflict: ``stale_fence``, ``wrong_offset``.
    """
    run = run_of_node(session, node_id, run_id)
    _check_attempt(session, node_id, run, batch.fence, batch.attempt)
    return metrics.store_batch(session, run, batch)


def store_log(session: Write, node_id: UUID, run_id: str, stretch: LogStretch) -> int:
    """Take a stretch of a log; returns how many bytes are stored.

    Raises:
        Conflict: ``stale_fence``, ``wrong_offset``.
    """
    if not is_plain_name(stretch.file) or stretch.file == EVENTS_NAME:
        raise Invalid.at("file", "This is no name of a log.", stretch.file[:120])
    if len(stretch.content) > LARGEST_LOG_BYTES:
        raise AppError(
            "too_large", 413, f"A stretch of a log has at most {LARGEST_LOG_BYTES} bytes. Send it in parts."
        )
    run = run_of_node(session, node_id, run_id)
    _check_attempt(session, node_id, run, stretch.fence, stretch.attempt)
    wake_run(session, run.id)
    return files.store_log(session, run, stretch.file, stretch.offset, stretch.content)


def offsets(session: Write, node_id: UUID, run_id: str, attempt: int) -> dict[str, int]:
    """Stored bytes of each file of an attempt."""
    run = run_of_node(session, node_id, run_id)
    return files.stored_bytes(session, run.id, attempt)


def request_upload(
    database: Database, store: LocalStore, node_id: UUID, run_id: str, asked: UploadRequest
) -> list[UploadLink]:
    """Announce a checkpoint's files; returns links for those that the store lacks.

    Raises:
        Conflict: ``stale_fence``, ``already_committed``.
    """
    with database.write() as session:
        run = run_of_node(session, node_id, run_id)
        check_open(session, node_id, run, asked.fence)
        prefix = checkpoints.announce(session, store, run, asked).prefix
    return checkpoints.missing_links(store, prefix, asked.files)


def commit_checkpoint(
    database: Database, store: LocalStore, node_id: UUID, run_id: str, asked: CheckpointCommit
) -> UUID:
    """Compare an upload with its manifest and make it visible.

    Raises:
        Conflict: ``stale_fence``, ``not_announced``, ``events_behind``, ``checkpoint_incomplete``.
    """
    with database.write() as session:
        run = run_of_node(session, node_id, run_id)
        check_open(session, node_id, run, asked.fence)
        checkpoint = checkpoints.announced(session, run, asked)
        session.expunge(checkpoint)
    manifest = None
    if checkpoint.committed is None:
        manifest = verify_upload(store, checkpoint, asked.manifest_digest)
    with database.write() as session:
        run = run_of_node(session, node_id, run_id)
        check_open(session, node_id, run, asked.fence)
        keep = RunSpec.model_validate(run.spec).checkpoint
        return checkpoints.commit(session, run, checkpoint.id, asked.manifest_digest, manifest, keep).id


def _check_attempt(session: Write, node_id: UUID, run: Run, fence: int, attempt: int) -> None:
    check_newest(session, node_id, run, fence)
    if attempt != run.attempt:
        raise stale_fence(run, fence)
