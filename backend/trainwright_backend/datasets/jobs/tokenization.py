"""Tokenizing one chunk of a preparation into token shards."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from sqlalchemy import update

from trainwright.contracts.token_shards import TOKENIZER_NAME
from trainwright.prepare.encode import Encoder, load_encoder
from trainwright.prepare.token_shards import write_chunk_shards
from trainwright.prepare.tokenizer import end_of_text_id, load_tokenizer
from trainwright_backend.core.db import Database, now
from trainwright_backend.core.object_store import ObjectStore
from trainwright_backend.datasets.job_queue import JobKind, send_job
from trainwright_backend.datasets.jobs.job import JobCancelledError
from trainwright_backend.datasets.jobs.preparation_jobs import TokenizeChunk
from trainwright_backend.datasets.tables import Preparation, PreparationChunk


def tokenize_chunk(
    database: Database, store: ObjectStore, job: TokenizeChunk, is_cancelled: Callable[[], bool]
) -> None:
    """Write the shards of one chunk."""
    encoder, end_of_text = _load_encoder(store.local_file(f"{job.folder}/{TOKENIZER_NAME}"))
    with store.working_folder() as folder:
        result = write_chunk_shards(
            store.local_file(job.chunk.chunk_key),
            store.read(job.chunk.mask_key),
            job.chunk.number,
            encoder,
            job.tokenizer,
            end_of_text,
            job.validation_fraction,
            folder,
            is_cancelled,
        )
        for shard in (result.train, result.validation):
            if shard.tokens:
                stored = store.put_file(f"{job.folder}/{shard.name}", folder / shard.name)
                if stored.digest != shard.digest:
                    raise OSError(f"{shard.name} was read back with other content than was written")
    with database.write() as session:
        # The preparation before its chunk, in the order of all transactions that lock both.
        session.change(
            update(Preparation)
            .where(Preparation.id == job.lease.owner_id)
            .values(
                shards_done=Preparation.shards_done + 1,
                tokens_done=Preparation.tokens_done + result.train.tokens + result.validation.tokens,
                failures=0,
                last_activity=now(),
            )
        )
        done = session.change(
            update(PreparationChunk)
            .where(*job.lease.conditions(), PreparationChunk.done.is_(False))
            .values(done=True, result=result.model_dump(mode="json"), lease=None, leased_until=None)
        )
        if not done:
            raise JobCancelledError
        send_job(session, JobKind.PREPARE, job.lease.owner_id)


@lru_cache(maxsize=2)
def _load_encoder(path: Path) -> tuple[Encoder, int]:
    """The encoder of a preparation, cached from chunk to chunk; its file never changes."""
    return load_encoder(path), end_of_text_id(load_tokenizer(path))
