"""Does training in FP8 end at bfloat16's loss? Paired runs with the same seed, data and order; only precision differs.

Two trainings that differ by one rounding drift apart until they differ almost as much as two seeds. So one pair shows
nothing, and a difference is meaningful only in comparison with a control: bfloat16 against bfloat16 with the rows of
each micro batch reversed, the same arithmetic with sums in another order.

A seed gives one number: the difference of the final validation loss in percent. The result is its mean over seeds with the
95 % interval (Student's t), at one learning rate: spreads differ several times between rates, so each rate is judged
separately.

The question is not whether a difference can be detected, which few seeds never can, but whether one above the bound can
be excluded (an equivalence test: Schuirmann 1987, one-sided, because a lower loss is not a fault). The bound is
0.5 %, or 1.5 times the upper end of the control's interval if that is more. The control may raise the bound only while
its own upper end is within 0.5 %; otherwise the interval is wide for lack of seeds, and would let anything pass.

    passed      the upper end is within the bound, and the power is at least 0.8
    failed      the lower end is beyond the bound
    not shown   anything else: too few seeds to tell

The power is the probability that so many seeds of the spread found pass a level that does not differ from bfloat16.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tests.benchmarks.trainer.paired_differences import POWER, Difference
from tests.benchmarks.trainer.paired_runs import Losses, Plan, losses_by_seed, write_job
from tests.benchmarks.trainer.timed_training import build_job, learn, validation_loss
from trainwright_trainer.data.loader import Batch, Loader

VARIANTS: dict[str, dict[str, Any]] = {
    "bf16": {"kind": "bf16"},
    "reversed": {"kind": "bf16"},
    "O1": {"kind": "fp8", "fp8": {"level": "O1"}},
    "O2": {"kind": "fp8", "fp8": {"level": "O2"}},
    "O3": {"kind": "fp8", "fp8": {"level": "O3"}},
}
"""What is trained for each seed and learning rate; ``reversed`` is the control."""

BOUND_PERCENT = 0.5
GOAL_PERCENT = 0.25
CONTROL_FACTOR = 1.5


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_SHOWN = "not shown"


def bound_for(control: Difference) -> float:
    """The largest difference in percent that passes."""
    if control.upper > BOUND_PERCENT:
        return BOUND_PERCENT
    return max(BOUND_PERCENT, CONTROL_FACTOR * control.upper)


def judge(level: Difference, bound: float) -> Verdict:
    if level.lower > bound:
        return Verdict.FAILED
    return Verdict.PASSED if level.upper <= bound and level.power(bound) >= POWER else Verdict.NOT_SHOWN


def losses(plan: Plan, processes: int, minutes: float = math.inf) -> Losses:
    """Train all variants of all seeds (``losses_by_seed``)."""
    return losses_by_seed(plan, list(VARIANTS), _train, processes, minutes)


def differences(found: Losses) -> dict[str, Difference]:
    """The difference of each variant to ``bf16``."""
    return {
        variant: Difference.between(ends, found["bf16"])
        for variant, ends in found.items()
        if variant != "bf16"
    }


class _Reversed:
    """A loader whose micro batches have their rows in the opposite order."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def micro_batches(self, step: int) -> Iterator[Batch]:
        for batch in self._loader.micro_batches(step):
            yield Batch(batch.sequences.flip(0))


def _train(training: tuple[Plan, int, str]) -> float:
    """One complete training in this process."""
    plan, seed, variant = training
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trainwright-parity-") as folder:
        made = build_job(write_job(Path(folder), plan, seed, precision=VARIANTS[variant]))
        loader = _Reversed(made.loader) if variant == "reversed" else made.loader
        with patch.object(made, "loader", loader):
            learn(made, plan.steps)
            return validation_loss(made)
