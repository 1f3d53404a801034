"""Random numbers as a function of the step, not of a state.

Before each step every rank seeds its generators with (seed, step, rank). So there is no random state to save or to
restore, and a resumed step draws the same numbers as the uninterrupted one. Weights and data order have their own seeds
(``model/init.py``, ``data/order.py``).
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch

_HASHED_AT_ONCE = 256
"""Steps that are hashed together. If they were hashed one by one, the hash function would no longer be in the
processor's caches each time."""


def seed_step(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed the generators of the host and of ``device`` for ``step`` on ``rank``.

    ``torch.manual_seed`` would also work, but spends a fifth of a millisecond on absent devices.
    """
    block, within = divmod(step, _HASHED_AT_ONCE)
    value = _block_seeds(seed, block, rank)[within]
    torch.default_generator.manual_seed(value)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(value)


def sample_seed(seed: int, step: int, prompt: int) -> int:
    """The seed of what the model writes after the prompt at index ``prompt``, independent of all draws of the training."""
    return _hashed(f"{seed} step {step} sample {prompt}")


@lru_cache(2)
def _block_seeds(seed: int, block: int, rank: int) -> list[int]:
    """Seeds of a block of steps."""
    first = block * _HASHED_AT_ONCE
    return [_step_seed(seed, step, rank) for step in range(first, first + _HASHED_AT_ONCE)]


def _step_seed(seed: int, step: int, rank: int) -> int:
    return _hashed(f"{seed} step {step} rank {rank}")


def _hashed(purpose: str) -> int:
    digest = hashlib.sha256(purpose.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
