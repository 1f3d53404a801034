"""The reader of a node gives each rank the batches that it would read itself, and its ends and faults become errors."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.jobs import write_job
from trainwright.contracts.job_spec import JobSpec
from trainwright.contracts.rank_progress import AxisName, lines_along
from trainwright_trainer.data import shared_batches
from trainwright_trainer.data.batch_ring import (
    SLOTS,
    BatchRing,
    Rows,
    lock_as_reader,
    ring_layout,
    ring_memory,
)
from trainwright_trainer.data.loader import Loader
from trainwright_trainer.data.node_reader import read_for_node
from trainwright_trainer.data.position import START, DataPosition
from trainwright_trainer.data.shared_batches import SharedBatches
from trainwright_trainer.data.token_shards import TokenStream, read_manifest
from trainwright_trainer.process.batch_reader import reader_of_node
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import ReaderError

STEPS = 6
"""Both slots are filled three times."""

LAYOUTS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "data 2": (1, 2, {}),
    "data 4": (1, 4, {}),
    "tensor 2": (1, 2, {"tensor": 2}),
    "pipeline 2": (1, 2, {"pipeline": 2}),
    "data 2, tensor 2": (1, 4, {"tensor": 2}),
    "data 2, pipeline 2": (1, 4, {"pipeline": 2}),
    "zero 3, 2 replicas of 2": (1, 4, {"zero_stage": 3, "shard": 2}),
    "data 4 on 2 nodes": (2, 2, {}),
    "a stage on each of 2 nodes": (2, 2, {"pipeline": 2}),
    "tensor 2 on each of 2 nodes": (2, 2, {"tensor": 2}),
}
"""Nodes, ranks of each, and the section of the spec."""


class Node:
    """The ranks of one node, all in this process, and their reader in a thread."""

    def __init__(self, job: JobSpec, data: Path, path: str, start: DataPosition) -> None:
        spec, manifest = job.spec, read_manifest(data)
        stream = TokenStream(data, manifest.train, manifest.token_type, spec.batch.sequence_tokens)
        index = {
            rank: at for line in lines_along(AxisName.DATA, spec.degrees) for at, rank in enumerate(line)
        }
        self.rings = [BatchRing(path, ring_layout(job)) for _ in job.local_ranks]
        self.shared, self.loaders, self.alone = [], [], []
        for local, rank in enumerate(job.local_ranks):
            given = (stream, spec.batch, spec.seed, index[rank], spec.degrees.data, start)
            self.shared.append(
                SharedBatches(self.rings[local], local, index[rank], manifest.token_type, start)
            )
            self.loaders.append(Loader(*given, self.shared[-1]))
            self.alone.append(Loader(*given))

    def differing(self, step: int) -> list[int]:
        """The ranks that do not get the batches that they would read themselves."""
        found = []
        batches = [loader.micro_batches(step) for loader in self.loaders]
        for local, (mine, loader) in enumerate(zip(batches, self.alone, strict=True)):
            expected = [batch.sequences for batch in loader.micro_batches(step)]
            read = [batch.sequences for batch in mine]
            if len(read) != len(expected) or not all(map(torch.equal, read, expected)):
                found.append(local)
        return found


@contextmanager
def memory(job: JobSpec) -> Iterator[str]:
    """The path of an empty ring, whose reader's lock this process holds."""
    with ring_memory(ring_layout(job)) as path:
        lock = lock_as_reader(path)
        yield path
        os.close(lock)


@contextmanager
def node_with_reader(job_file: Path, start: DataPosition = START) -> Iterator[Node]:
    job, data = read_job(job_file), job_file.parent / "data"

    def read() -> None:
        with suppress(OSError, ValueError):  # the ranks report them
            read_for_node(job, data, path)

    with memory(job) as path:
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        node = Node(job, data, path, start)
        try:
            yield node
        finally:
            for local, ring in enumerate(node.rings):
                ring.begin_step(local, job.spec.schedule.steps)  # so that the reader ends
            reader.join()


def two_ranks(folder: Path, data: Path, **parallelism: Any) -> Path:
    return write_job(folder, data, 2, parallelism=parallelism, schedule={"steps": STEPS, "warmup_steps": 1})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_batches, "PATIENCE_SECONDS", 0.5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("start", [START, DataPosition(step=10, sequences=91)], ids=["new", "resumed"])
def test_every_rank_gets_the_batches_that_it_would_read(
    tmp_path: Path, data: Path, layout: str, start: DataPosition
) -> None:
    """Bit for bit, also if a step is computed again; each sequence is read once, however many ranks need it."""
    nodes, ranks, parallelism = LAYOUTS[layout]
    schedule = {"steps": start.step + STEPS, "warmup_steps": 1}
    for number in range(nodes):
        job_file = write_job(
            tmp_path / str(number),
            data,
            ranks,
            {"node_rank": number},
            nodes,
            parallelism=parallelism,
            schedule=schedule,
        )
        with node_with_reader(job_file, start) as node:
            for step in range(start.step + 1, start.step + STEPS + 1):
                assert node.differing(step) == []
                assert node.differing(step) == []
            layout_of_node = node.rings[0].layout
            data_ranks = read_job(job_file).spec.degrees.data
            assert node.rings[0].rows_read == STEPS * 8 * len(layout_of_node.data_ranks) // data_ranks


def _other_slot(node: Node) -> None:
    ring = node.rings[1]
    right = ring.rows
    ring.rows = lambda step: right(step + 1)  # type: ignore[method-assign]


def _a_row_late(node: Node) -> None:
    own = node.shared[0]._own
    node.shared[0]._own = slice(own.start + 1, own.stop + 1)


def _a_sequence_late(node: Node) -> None:
    node.rings[0].start = DataPosition(sequences=1)


@pytest.mark.parametrize("plant", [_other_slot, _a_row_late, _a_sequence_late])
def test_wrong_rows_are_detected(tmp_path: Path, data: Path, plant: Callable[[Node], None]) -> None:
    """Negative controls of the test above. A planted position must come before the reader looks at it."""
    job, folder = read_job(two_ranks(tmp_path, data)), tmp_path / "data"
    with memory(job) as path:
        node = Node(job, folder, path, START)
        plant(node)
        reader = threading.Thread(target=read_for_node, args=(job, folder, path), daemon=True)
        reader.start()
        wrong = [step for step in range(1, STEPS + 1) if node.differing(step)]
        assert wrong
        reader.join()


def test_a_reader_that_waits_for_no_rank_is_detected(
    tmp_path: Path, data: Path, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = BatchRing.all_have_begun
    monkeypatch.setattr(BatchRing, "all_have_begun", lambda ring, _: right(ring, 0))
    with node_with_reader(two_ranks(tmp_path, data)) as node, pytest.raises(ReaderError):
        for step in range(1, STEPS + 1):
            assert node.differing(step) == []


def test_a_slot_that_is_reused_while_a_rank_reads_it_is_an_error(tmp_path: Path, data: Path) -> None:
    with node_with_reader(two_ranks(tmp_path, data)) as node:
        ring = node.rings[0]
        right = ring.rows

        def reused(step: int) -> Rows:
            ring.begin_filling(step + SLOTS)
            return right(step)

        ring.rows = reused  # type: ignore[method-assign]
        with pytest.raises(ReaderError, match="the batch of step 1 was overwritten"):
            node.differing(1)


def test_a_shard_that_becomes_shorter_is_named(tmp_path: Path, data: Path) -> None:
    shutil.copytree(data, tmp_path / "data")
    with node_with_reader(two_ranks(tmp_path, data)) as node:
        assert node.differing(1) == []
        for shard in (tmp_path / "data").glob("train-*.bin"):
            os.truncate(shard, 0)
        with pytest.raises(
            ReaderError, match=r"the reader of this node failed: shard train-00000\.bin has become"
        ):
            for step in range(2, STEPS + 1):
                for batches in [loader.micro_batches(step) for loader in node.loaders]:
                    list(batches)


def test_a_reader_that_ended_is_an_error(tmp_path: Path, data: Path) -> None:
    job = read_job(two_ranks(tmp_path, data))
    with memory(job) as path:
        node = Node(job, tmp_path / "data", path, START)
    with pytest.raises(ReaderError, match="the reader of this node ended before it had read step 1"):
        node.differing(1)


def test_a_reader_that_reads_nothing_is_an_error(tmp_path: Path, data: Path, impatient: None) -> None:
    job = read_job(two_ranks(tmp_path, data))
    with memory(job) as path:
        node = Node(job, tmp_path / "data", path, START)
        with pytest.raises(ReaderError, match="has read nothing for"):
            node.differing(1)


def test_a_slow_reader_is_no_error(tmp_path: Path, data: Path, impatient: None) -> None:
    """As long as it reads, however little."""
    job = read_job(two_ranks(tmp_path, data))
    with memory(job) as path:
        node, ring = Node(job, tmp_path / "data", path, START), BatchRing(path, ring_layout(job))

        def read_slowly() -> None:
            for _ in range(10):
                ring.count_row()
                threading.Event().wait(0.2)
            ring.end_filling(1)

        reader = threading.Thread(target=read_slowly)
        reader.start()
        assert len(list(node.loaders[0].micro_batches(1))) == 2
        reader.join()


def test_a_single_rank_has_no_reader(tmp_path: Path, data: Path) -> None:
    for ranks, expected in ((1, None), (2, "/proc/")):
        job_file = write_job(tmp_path / str(ranks), data, ranks)
        with reader_of_node(read_job(job_file), job_file):
            path = os.environ.get("TRAINWRIGHT_BATCHES")
            assert path is expected if expected is None else str(path).startswith(expected)
        assert "TRAINWRIGHT_BATCHES" not in os.environ
