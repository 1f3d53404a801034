"""Planning a preparation: train or copy its tokenizer, and create the rows of its chunks."""

from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import update

from trainwright.contracts.api.datasets import PreparationState
from trainwright.contracts.data_spec import TokenizerKind
from trainwright.contracts.token_shards import TOKENIZER_NAME
from trainwright.prepare.documents import UnusableDataError
from trainwright.prepare.token_shards import sample_texts
from trainwright.prepare.tokenizer import byte_tokenizer, tokenizer_bytes, train_bpe
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.job_queue import PENDING_PREPARATION, JobKind, send_job
from trainwright_backend.datasets.jobs.job import JobCancelledError
from trainwright_backend.datasets.jobs.preparation_jobs import ChunkToTokenize, PlanPreparation
from trainwright_backend.datasets.lazy_sequence import LazySequence
from trainwright_backend.datasets.tables import Preparation, PreparationChunk


def plan_preparation(
    database: Database, store: ObjectStore, job: PlanPreparation, is_cancelled: Callable[[], bool]
) -> None:
    """Write the tokenizer and the rows of the chunks.

    Sampling documents for a tokenizer can be interrupted; merging pairs after it cannot.

    Raises:
        JobCancelledError: the job was cancelled.
    """
    content = _tokenizer_content(store, job, is_cancelled)
    if is_cancelled():
        raise JobCancelledError
    store.write(f"{job.folder}/{TOKENIZER_NAME}", content)
    with database.write() as session:
        planned = session.change(
            update(Preparation)
            .where(*job.lease.conditions(), Preparation.state.in_(PENDING_PREPARATION))
            .values(
                state=PreparationState.WORKING,
                shards_total=len(job.chunks),
                tokenizer_bytes=len(content),
                failures=0,
                lease=None,
                leased_until=None,
                last_activity=now(),
            )
        )
        if not planned:
            raise JobCancelledError
        session.add_all(
            PreparationChunk(preparation_id=job.lease.owner_id, number=chunk.number) for chunk in job.chunks
        )
        send_job(session, JobKind.PREPARE, job.lease.owner_id, len(job.chunks))


def _tokenizer_content(store: ObjectStore, job: PlanPreparation, is_cancelled: Callable[[], bool]) -> bytes:
    if job.tokenizer.has_source:
        if job.tokenizer_key is None:
            raise UnusableDataError(
                f"The tokenizer of {job.tokenizer.source} was deleted before it was copied. Choose another one."
            )
        return store.read(job.tokenizer_key)
    if job.tokenizer.kind is TokenizerKind.BYTES:
        return tokenizer_bytes(byte_tokenizer())

    def load(chunk: ChunkToTokenize) -> tuple[Path, bytes | None]:
        return store.local_file(chunk.chunk_key), store.read(chunk.mask_key)

    texts = sample_texts(LazySequence(job.chunks, load), job.validation_fraction)
    return tokenizer_bytes(train_bpe(_until_cancelled(texts, is_cancelled), job.tokenizer.size))


def _until_cancelled(texts: Iterator[str], is_cancelled: Callable[[], bool]) -> Iterator[str]:
    for text in texts:
        if is_cancelled():
            raise JobCancelledError
        yield text
