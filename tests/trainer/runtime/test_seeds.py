"""A step's random numbers depend only on seed, step and rank, in every release."""

import hashlib

import pytest
import torch

from trainwright_trainer.runtime.seeds import seed_step


@pytest.mark.parametrize("step", [1, 255, 256, 257, 10_000_019])
@pytest.mark.parametrize(("seed", "rank"), [(0, 0), (2**40, 3)])
def test_a_step_is_seeded_by_a_hash_of_seed_step_and_rank(seed: int, step: int, rank: int) -> None:
    """A run resumes bit for bit after a software update, so these numbers must not change."""
    seed_step(seed, step + 1, rank, torch.device("cpu"))
    seed_step(seed, step, rank, torch.device("cpu"))
    drawn = torch.rand(4)
    digest = hashlib.sha256(f"{seed} step {step} rank {rank}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    assert torch.equal(drawn, torch.rand(4))
