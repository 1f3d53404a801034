"""The order of the data depends only on the seed, the shards and the batch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.contracts.token_shards import ShardManifest
from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.data.loader import Loader
from trainwright_trainer.data.order import SequenceOrder, permute
from trainwright_trainer.data.position import DataPosition
from trainwright_trainer.data.token_shards import TokenFiles, TokenStream, read_manifest


def _all(size: int) -> np.ndarray:
    return np.arange(size, dtype=np.uint64)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3_000), st.integers(0, 2**63 - 1), st.integers(0, 1_000))
def test_an_epoch_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    assert sorted(permute(_all(size), size, seed, epoch).tolist()) == list(range(size))


def test_seeds_and_epochs_give_different_orders() -> None:
    orders = {tuple(permute(_all(100), 100, seed, epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_the_order_is_not_biased() -> None:
    """A random permutation of n moves an index by n/3 on average;
    over 10,000 indices, chance is 1 % of that."""
    size = 10_000
    displacement = np.abs(permute(_all(size), size, 3, 0).astype(np.int64) - np.arange(size)).mean()
    assert displacement == pytest.approx(size / 3, rel=0.05)


def test_positions_continue_through_epochs() -> None:
    order = SequenceOrder(10, seed=1)
    seen = order.at(_all(30)).reshape(3, 10)
    assert [sorted(epoch.tolist()) for epoch in seen] == [list(range(10))] * 3
    assert len({tuple(epoch.tolist()) for epoch in seen}) == 3


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("micro_sequences", [1, 2])
def test_any_number_of_ranks_sees_the_same_global_batches(
    data: Path, ranks: int, micro_sequences: int
) -> None:
    """The complete global batch, in order: rank r of R has its rows r, r + R, …"""
    for step in (1, 2, 40):
        expected = _rows(data, step, rank=0, ranks=1, micro_sequences=8)
        merged = torch.empty_like(expected)
        for rank in range(ranks):
            merged[rank::ranks] = _rows(data, step, rank, ranks, micro_sequences)
        assert torch.equal(merged, expected)


def _rows(data: Path, step: int, rank: int, ranks: int, micro_sequences: int) -> torch.Tensor:
    manifest = read_manifest(data)
    stream = TokenStream(data, manifest.train, manifest.token_type, 32)
    batch = BatchSpec(sequence_tokens=32, micro_sequences=micro_sequences, global_sequences=8)
    loader = Loader(stream, batch, seed=5, rank=rank, ranks=ranks)
    return torch.cat([micro.tokens for micro in loader.micro_batches(step)])


def test_sequences_cross_shards_and_overlap_by_one_token(tmp_path: Path) -> None:
    tokens = np.arange(101, dtype="<u2")
    shards = []
    for name, part in (("a", tokens[:37]), ("b", tokens[37:40]), ("c", tokens[40:])):
        part.tofile(tmp_path / name)
        shards.append({"name": name, "digest": "", "bytes": part.nbytes, "tokens": len(part), "documents": 1})
    manifest = ShardManifest.model_validate(
        {
            "tokenizer": {"kind": "bytes"},
            "end_of_text": 256,
            "token_type": "uint16",
            "tokenizer_digest": "",
            "validation_fraction": 0,
            "train": {"tokens": 101, "shards": shards},
        }
    )
    stream = TokenStream(tmp_path, manifest.train, manifest.token_type, 10)
    assert stream.sequences == 10
    expected = [list(range(10 * index, 10 * index + 11)) for index in range(10)]
    assert stream.read(range(10)).tolist() == expected
    assert stream.read([7, 3]).tolist() == [expected[7], expected[3]]

    files = TokenFiles(tmp_path, manifest.train, manifest.token_type, 10)
    assert files.sequences == 10
    rows = np.zeros((10, 11), "<u2")
    for index, row in enumerate(rows):
        files.read_into(row.data.cast("B"), index)
    assert rows.tolist() == expected


def test_the_batch_of_a_step_does_not_depend_on_earlier_reads(data: Path) -> None:
    """Steps on both sides of the end of a group whose order is computed together, requested in any order."""
    manifest = read_manifest(data)
    stream = TokenStream(data, manifest.train, manifest.token_type, 32)
    loader = Loader(stream, BatchSpec(sequence_tokens=32, micro_sequences=2, global_sequences=8), 5, 0, 1)
    order = SequenceOrder(stream.sequences, 5)
    for step in (512, 513, 1, 512, 1_025):
        positions = np.arange((step - 1) * 8, step * 8, dtype=np.uint64)
        rows = torch.cat([micro.sequences for micro in loader.micro_batches(step)])
        assert rows.tolist() == stream.read(order.at(positions).tolist()).tolist()


LEFT = DataPosition(step=10, sequences=10 * 8)
"""A run with 8 sequences per step was interrupted after step 10."""


def _differing_steps(
    data: Path, global_sequences: int, ranks: int, position: DataPosition = LEFT
) -> list[int]:
    """Steps after ``LEFT`` in which a loader that starts at ``position`` does not read the next sequences.

    They lie on both sides of the end of a group whose order is computed together.
    """
    manifest = read_manifest(data)
    stream = TokenStream(data, manifest.train, manifest.token_type, 32)
    batch = BatchSpec(sequence_tokens=32, micro_sequences=1, global_sequences=global_sequences)
    order = SequenceOrder(stream.sequences, 5)
    loaders = [Loader(stream, batch, 5, rank, ranks, position) for rank in range(ranks)]
    found = []
    for made in (0, 1, 2, 511, 512, 513, 1_024):
        first = LEFT.sequences + made * global_sequences
        expected = stream.read(order.at(np.arange(first, first + global_sequences, dtype=np.uint64)).tolist())
        step = LEFT.step + 1 + made
        for rank, loader in enumerate(loaders):
            rows = torch.cat([micro.sequences for micro in loader.micro_batches(step)])
            if rows.tolist() != expected[rank::ranks].tolist() and step not in found:
                found.append(step)
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("global_sequences", [8, 4, 12])
def test_a_resumed_loader_reads_the_sequences_that_follow(
    data: Path, global_sequences: int, ranks: int
) -> None:
    """It does so with the same number of sequences a step as before, with fewer, and with more."""
    assert _differing_steps(data, global_sequences, ranks) == []


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(replace(LEFT, sequences=LEFT.sequences + 1), id="a sequence late"),
        pytest.param(replace(LEFT, sequences=LEFT.sequences - 1), id="a sequence early"),
        pytest.param(replace(LEFT, step=LEFT.step - 1), id="a step late"),
        pytest.param(DataPosition(step=LEFT.step), id="from the start"),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_position_that_is_off_by_one_after_a_resume_is_detected(
    data: Path, position: DataPosition, ranks: int
) -> None:
    """Negative control of the test above, in the first step already."""
    assert LEFT.step + 1 in _differing_steps(data, 8, ranks, position)


def test_a_run_that_is_resumed_twice_reads_the_sequences_that_follow(data: Path) -> None:
    """The second attempt counts from where the first one was left."""
    manifest = read_manifest(data)
    stream = TokenStream(data, manifest.train, manifest.token_type, 32)
    batch = BatchSpec(sequence_tokens=32, micro_sequences=8, global_sequences=8)
    first = Loader(stream, batch, 5, 0, 1, LEFT)
    second = Loader(stream, batch, 5, 0, 1, DataPosition(step=13, sequences=first.sequences_read(13)))
    for step in (14, 15):
        ((expected,), (found,)) = (list(loader.micro_batches(step)) for loader in (first, second))
        assert torch.equal(found.sequences, expected.sequences)
