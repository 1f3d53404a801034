"""What an agent ships for an attempt: events, logs and checkpoints, each guarded by its fence.

No transaction is open while the object store is queried: such a message takes a short transaction, the query,
and a second transaction that checks the fence again.
"""

from dataclasses import dataclass
from uuid import UUID

from trainwright.contracts.agent_protocol import Batch, CheckpointCommit, UploadLink, UploadRequest
from trainwright.contracts.file_names import is_plain_name
from trainwright.contracts.job_spec import EVENTS_NAME
from trainwright_backend.attempts.fencing import (
    check_fence,
    check_first_node,
    check_live_fence,
    check_own_log,
    has_other_open_claim,
    run_of_node,
    stale_fence,
)
from trainwright_backend.checkpoints import service as checkpoints
from trainwright_backend.checkpoints.manifests import verify_upload
from trainwright_backend.core.db import Database, Write
from trainwright_backend.core.errors import AppError, Conflict, Invalid
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.metrics import batch_ingest
from trainwright_backend.runs import attempt_files
from trainwright_backend.runs.stored_spec import stored_spec
from trainwright_backend.runs.tables import Run

MAX_LOG_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class LogRange:
    """Bytes of a log and their position in it."""

    file: str
    attempt: int
    fence: int
    offset: int
    content: bytes


def store_batch(session: Write, node_id: UUID, run_id: str, batch: Batch) -> int:
    """Store a batch of events; returns how many bytes of the file are stored.

    Raises:
        Conflict: ``stale_fence``, ``wrong_offset``.
    """
    run = run_of_node(session, node_id, run_id)
    _check_attempt(session, node_id, run, batch.fence, batch.attempt)
    check_first_node(session, node_id, run)
    return batch_ingest.store_batch(session, run, batch)


def store_log(session: Write, node_id: UUID, run_id: str, log_range: LogRange) -> int:
    """Store a range of a log; returns how many bytes of the file are stored.

    Raises:
        Conflict: ``stale_fence``, ``wrong_offset``.
    """
    if not is_plain_name(log_range.file) or log_range.file == EVENTS_NAME:
        raise Invalid.at("file", "This is not the name of a log.", log_range.file[:120])
    if len(log_range.content) > MAX_LOG_BYTES:
        raise AppError(
            "too_large", 413, f"A range of a log has at most {MAX_LOG_BYTES} bytes. Send it in parts."
        )
    run = run_of_node(session, node_id, run_id)
    _check_attempt(session, node_id, run, log_range.fence, log_range.attempt)
    check_own_log(session, node_id, run, log_range.file)
    return attempt_files.store_log(session, run, log_range.file, log_range.offset, log_range.content)


def offsets(session: Write, node_id: UUID, run_id: str, attempt: int) -> dict[str, int]:
    """Stored bytes of each file of an attempt."""
    run = run_of_node(session, node_id, run_id)
    return attempt_files.stored_bytes(session, run.id, attempt)


def request_upload(
    database: Database, store: ObjectStore, node_id: UUID, run_id: str, request: UploadRequest
) -> list[UploadLink]:
    """Announce a checkpoint's files; returns links for those that the store lacks.

    Raises:
        Conflict: ``stale_fence``, ``already_committed``.
    """
    with database.write() as session:
        run = run_of_node(session, node_id, run_id)
        check_live_fence(session, node_id, run, request.fence)
        prefix = checkpoints.announce(session, store, run, request).prefix
    return checkpoints.missing_links(store, prefix, request.files)


def commit_checkpoint(
    database: Database, store: ObjectStore, node_id: UUID, run_id: str, request: CheckpointCommit
) -> UUID:
    """Compare an upload with its manifest and make it visible.

    Raises:
        Conflict: ``stale_fence``, ``not_announced``, ``events_behind``, ``checkpoint_incomplete``, ``awaiting_nodes``.
    """
    with database.write() as session:
        run = run_of_node(session, node_id, run_id)
        check_live_fence(session, node_id, run, request.fence)
        checkpoint = checkpoints.announced(session, run, request)
        check_first_node(session, node_id, run)
        others_send = run.nodes > 1 and has_other_open_claim(session, node_id, run)
        session.expunge(checkpoint)
    manifest = None
    if checkpoint.committed is None:
        if others_send and (missing := checkpoints.count_missing(store, checkpoint)):
            detail = (
                f"{missing} of {len(checkpoint.files)} files are missing, which other nodes may still send."
            )
            raise Conflict("awaiting_nodes", detail)
        manifest = verify_upload(store, checkpoint, request.manifest_digest)
    with database.write() as session:
        run = run_of_node(session, node_id, run_id)
        check_live_fence(session, node_id, run, request.fence)
        keep = stored_spec(run).checkpoint
        return checkpoints.commit(session, run, checkpoint.id, request.manifest_digest, manifest, keep).id


def _check_attempt(session: Write, node_id: UUID, run: Run, fence: int, attempt: int) -> None:
    check_fence(session, node_id, run, fence)
    if attempt != run.attempt:
        raise stale_fence(run, fence)
