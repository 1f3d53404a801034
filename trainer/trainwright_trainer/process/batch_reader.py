"""The process that reads the shards for the ranks of a node, started and ended by the launcher."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.contracts.job_spec import DATA_FOLDER, JobSpec
from trainwright_trainer.data.batch_ring import BATCHES_VARIABLE, lock_as_reader, ring_layout, ring_memory
from trainwright_trainer.data.node_reader import read_for_node
from trainwright_trainer.process.signals import die_with_parent, name_process

_NAME = "tw-reader"


@contextmanager
def reader_of_node(job: JobSpec, job_file: Path) -> Iterator[None]:
    """Run the reader while the body runs, for the ranks that the body starts. A single rank reads for itself.

    If the job's ranks are not those of its spec, there is none: the ranks report it.
    """
    if len(job.slots) == 1 or job.ranks != job.spec.resources.ranks:
        yield
        return
    with ring_memory(ring_layout(job)) as path:
        lock = lock_as_reader(path)
        # Forked like CPU ranks, before torch has run; the reader uses no GPU.
        reader = multiprocessing.get_context("fork").Process(
            target=_run, args=(job, job_file.parent / DATA_FOLDER, path), daemon=True
        )
        reader.start()
        os.close(lock)  # from now on, only the reader holds it
        os.environ[BATCHES_VARIABLE] = path
        try:
            yield
        finally:
            del os.environ[BATCHES_VARIABLE]
            reader.kill()
            reader.join()


def _run(job: JobSpec, data: Path, path: str) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher ends it
    name_process(_NAME)
    read_for_node(job, data, path)
