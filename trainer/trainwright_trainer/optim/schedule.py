"""The learning rate as a pure function of the step: nothing to save, nothing to restore."""

from __future__ import annotations

import math

from trainwright.contracts.run_spec import ScheduleSpec


def learning_rate_at(step: int, peak: float, schedule: ScheduleSpec) -> float:
    """Rate of optimizer step ``step`` (from 1): linear up to ``peak``, then half a cosine down to the last step.

    The last warm-up step has the peak, the last step of the run ``final_fraction`` of it.
    """
    if step <= schedule.warmup_steps:
        return peak * step / schedule.warmup_steps
    progress = (step - schedule.warmup_steps) / (schedule.steps - schedule.warmup_steps)
    fraction = (
        schedule.final_fraction + (1 - schedule.final_fraction) * (1 + math.cos(math.pi * progress)) / 2
    )
    return peak * fraction
