"""The timings of every rank, for finding stragglers.

Ranks wait for each other, so steps take equally long on all ranks. A slow rank is the one that waits least in
collectives and computes longest. Rank 0 writes the timings of all ranks as series ``rank_seconds/<rank>:<timing>``,
every few steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from trainwright.contracts.series import RANK_SERIES
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.observe.step_timer import Timing

EVERY_STEPS = 10


def rank_seconds(world: Axis, step: int, timings: Mapping[Timing, float]) -> dict[str, float]:
    """Series values of all ranks in ``step``; empty between two measurements, or with one rank. All ranks
    must call this.
    """
    if world.ranks == 1 or step % EVERY_STEPS:
        return {}
    spent_RP = torch.zeros(world.ranks, len(Timing), dtype=torch.float32, device=world.device)
    spent_RP[world.rank] = torch.tensor([timings[timing] for timing in Timing])
    world.all_gather_into(spent_RP)
    return {
        f"{RANK_SERIES}/{rank}:{timing}": seconds
        for rank, spent in enumerate(spent_RP.tolist())
        for timing, seconds in zip(Timing, spent, strict=True)
    }
