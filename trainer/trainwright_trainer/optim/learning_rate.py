"""The learning rate as a pure function of the step: there is no state to save or restore.

Every kind rises linearly over the warm-up, ends at ``final_fraction`` of the peak, and differs in between:

    cosine   half a cosine from the end of the warm-up to the last step (Loshchilov & Hutter 2017)
    linear   a straight line over the same steps
    wsd      the peak until the last ``final_steps``, over which it falls linearly (Hu et al. 2024): the length of the
             training can be decided late, and any step of the plateau is a point to fork from
"""

from __future__ import annotations

import math

from trainwright.contracts.training_spec import ScheduleKind, ScheduleSpec


def learning_rate_at(step: int, peak: float, schedule: ScheduleSpec) -> float:
    """Rate of optimizer step ``step`` (from 1). The last warm-up step has the peak, the run's last step the
    final rate.
    """
    warmup = schedule.resolved_warmup_steps
    if step <= warmup:
        return peak * step / warmup
    height = _height(step, schedule)
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * height)


def _height(step: int, schedule: ScheduleSpec) -> float:
    """Position between 1, the peak, and 0, the end, after the warm-up."""
    if schedule.kind is ScheduleKind.WSD:
        return min(1.0, (schedule.steps - step) / schedule.final_steps)
    warmup = schedule.resolved_warmup_steps
    progress = (step - warmup) / (schedule.steps - warmup)
    if schedule.kind is ScheduleKind.LINEAR:
        return 1 - progress
    return (1 + math.cos(math.pi * progress)) / 2
