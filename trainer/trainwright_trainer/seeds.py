"""Randomness as a function of the position, not as a state.

Before each step every rank seeds its generators by (seed, step, rank). So there is no random state to save, to lose
or to restore in the wrong order: a resumed step draws what the uninterrupted one drew. Weights and data order have
seeds of their own (``model/init.py``, ``data/order.py``).
"""

from __future__ import annotations

import hashlib

import torch


def seed_step(seed: int, step: int, rank: int) -> None:
    """Make what follows draw the random numbers of ``step`` on ``rank``, on every device."""
    digest = hashlib.sha256(f"{seed} step {step} rank {rank}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "big") >> 1)
