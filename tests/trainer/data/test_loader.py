"""Batches are the same, however many are read together."""

from pathlib import Path

import numpy as np
import pytest
import torch

from trainwright_trainer.data import loader
from trainwright_trainer.data.loader import read_batches
from trainwright_trainer.data.token_shards import TokenStream, read_manifest


@pytest.mark.parametrize("together", [1, 32 * 5, 2**30])
def test_batches_contain_the_requested_sequences_in_order(
    data: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(loader, "_READ_AT_ONCE_TOKENS", together)
    manifest = read_manifest(data)
    stream = TokenStream(data, manifest.train, manifest.token_type, 32)
    names = np.array([5, 0, 7, 7, 1, 200, 3, 9], dtype=np.uint64)
    batches = list(read_batches(stream, names, 3))
    assert [len(batch.sequences) for batch in batches] == [3, 3, 2]
    for batch in batches:
        assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    read = torch.cat([batch.sequences for batch in batches])
    assert torch.equal(read, torch.from_numpy(stream.read(names.tolist())))
