"""Randomness as a function of the position, not as a state.

Before each step every rank seeds its generators by (seed, step, rank). So there is no random state to save, to lose
or to restore in the wrong order: a resumed step draws what the uninterrupted one drew. Weights and data order have
seeds of their own (``model/init.py``, ``data/order.py``).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch

_HASHED_AT_ONCE = 256
"""Steps. One by one each would find the hash function gone from the processor's caches."""


def seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Make what follows draw the random numbers of ``step`` on ``rank``, on the host and on its device.

    ``torch.manual_seed`` would do as well, and spend a fifth of a millisecond on devices that are not there.
    """
    stretch, within = divmod(step, _HASHED_AT_ONCE)
    number = _numbers(seed, stretch, rank)[within]
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(number)


@lru_cache(2)
def _numbers(seed: int, stretch: int, rank: int) -> list[int]:
    """Seeds of a stretch of steps."""
    first = stretch * _HASHED_AT_ONCE
    return [_number(seed, step, rank) for step in range(first, first + _HASHED_AT_ONCE)]


def _number(seed: int, step: int, rank: int) -> int:
    digest = hashlib.sha256(f"{seed} step {step} rank {rank}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
