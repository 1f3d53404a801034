"""How long each rank spent in each phase of a step, for the eye that looks for a straggler.

Ranks wait for each other, so that all steps are equally long; the slow rank is the one that waits least in collectives and
computes longest. Rank 0 writes the numbers of all as series ``rank_seconds/<rank>:<phase>``, every few steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from trainwright.contracts.events import RANK_SERIES
from trainwright_trainer.mesh import Axis
from trainwright_trainer.observe.throughput import Phase

EVERY_STEPS = 10


def rank_seconds(world: Axis, step: int, phases: Mapping[Phase, float]) -> dict[str, float]:
    """Series values of all ranks in ``step``; none between two measurements, or with one rank. All ranks must call."""
    if world.ranks == 1 or step % EVERY_STEPS:
        return {}
    spent_RP = torch.zeros(world.ranks, len(Phase), dtype=torch.float32, device=world.device)
    spent_RP[world.rank] = torch.tensor([phases[phase] for phase in Phase])
    world.gather(spent_RP)
    return {
        f"{RANK_SERIES}/{rank}:{phase}": seconds
        for rank, spent in enumerate(spent_RP.tolist())
        for phase, seconds in zip(Phase, spent, strict=True)
    }
