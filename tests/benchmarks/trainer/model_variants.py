"""Do options that papers recommend lower the loss of a small model?

Each variant is compared with a plain model (full attention, serial blocks, AdamW) that has the same seed, data, order, number of
tokens, and parameters up to half a percent: the feed-forward network gives up what the variant adds. A seed gives one number, the
difference of the final validation loss in percent; the result is its mean over seeds with the 95 % interval.

Learning rates decide such comparisons. So every contender, the plain model included, first trains at several rates with a seed
that is not counted, and then uses the best.

    goal       the upper end of the interval is at most 0: the loss is lower
    pass       it is at most 0.5 %: a loss higher by more is excluded
    no         the lower end is above 0.5 %
    not shown  anything else: too few seeds to tell
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from tests.benchmarks.report.entries import Entry
from tests.benchmarks.trainer.paired_differences import Difference
from tests.benchmarks.trainer.paired_runs import Losses, Plan, losses_by_seed, write_job
from tests.benchmarks.trainer.timed_training import build_job, learn, validation_loss
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.token_shards import MANIFEST_NAME, ShardManifest
from trainwright.planner.flops import count_parameters

PASS_PERCENT = 0.5
PARAMETERS_PERCENT = 0.5
TUNING_SEED = 0
PLAIN = "plain"


@dataclass(frozen=True)
class Variant:
    """What differs from the plain model."""

    model: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    batch_factor: int = 1
    """How many times as many sequences a step has. The number of steps is smaller by this factor."""

    rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3)


VARIANTS = {
    PLAIN: Variant(),
    "localized-filtering": Variant(model={"attention": "localized_filtering"}),
    "parallel-block": Variant(model={"block": "parallel"}),
    "sliding-window": Variant(model={"sliding_window": 32}),
    "lamb-4x": Variant(optimizer={"kind": "lamb"}, batch_factor=4, rates=(5e-3, 1e-2, 2e-2)),
    "muon": Variant(optimizer={"kind": "muon"}),
}
"""Localized filtering: Yuan 2.0; parallel block, sliding window and LAMB with four times the batch: MegaScale, section 3.1;
Muon: Jordan et al. 2024."""


def model_of(variant: Variant, plan: Plan, vocabulary: int) -> ModelSpec:
    """The variant's model, with as many parameters as the plain one.

    Raises:
        ValueError: no feed-forward width comes within half a percent.
    """

    def parameters(model: ModelSpec) -> int:
        return count_parameters(model, vocabulary, plan.sequence_tokens).total

    plain = ModelSpec.model_validate(plan.model)
    wanted = parameters(plain)
    widths = range(8, 2 * plain.feed_forward_width, 2)
    models = (
        ModelSpec.model_validate(plan.model | dict(variant.model) | {"feed_forward": width})
        for width in widths
    )
    found = min(models, key=lambda model: abs(parameters(model) - wanted))
    if abs(parameters(found) / wanted - 1) > PARAMETERS_PERCENT / 100:
        raise ValueError(
            f"{variant} has {parameters(found):,} parameters at best, and the plain model {wanted:,}"
        )
    return found


def losses(plan: Plan, processes: int, minutes: float = math.inf) -> Losses:
    """Choose each variant's learning rate, and train all variants of all seeds."""
    trials = [f"{name} {rate:g}" for name, variant in VARIANTS.items() for rate in variant.rates]
    tuning = losses_by_seed(replace(plan, seeds=(TUNING_SEED,)), trials, _train, processes)
    chosen = [
        min((f"{name} {rate:g}" for rate in variant.rates), key=lambda trial: tuning[trial][0])
        for name, variant in VARIANTS.items()
    ]
    print("learning rates: " + ", ".join(chosen), flush=True)
    found = losses_by_seed(plan, chosen, _train, processes, minutes)
    return dict(zip(VARIANTS, found.values(), strict=True))


def entries(found: Losses) -> dict[str, Entry]:
    """Print the differences to the plain model, and return one entry per variant."""
    made = {}
    for name, ends in found.items():
        if name == PLAIN:
            continue
        difference = Difference.between(ends, found[PLAIN])
        reached = verdict(difference)
        print(f"{name:<20} {difference}   {reached}; {difference.seeds} seeds")
        made[f"variants-{name}"] = Entry(
            ours=mean(ends),
            peer=mean(found[PLAIN]),
            ratio=1 + difference.mean / 100,
            unit="final validation loss",
            passes=1 + PASS_PERCENT / 100,
            goal=1.0,
            reached=reached,
        )
    return made


def verdict(difference: Difference) -> str:
    """What the interval shows: `goal`, `pass`, `no` or `not shown`."""
    if difference.upper <= PASS_PERCENT:
        return "goal" if difference.upper <= 0 else "pass"
    return "no" if difference.lower > PASS_PERCENT else "not shown"


def _train(training: tuple[Plan, int, str]) -> float:
    """One complete training in this process, of a variant at a learning rate."""
    plan, seed, trial = training
    name, rate = trial.split()
    variant = VARIANTS[name]
    vocabulary = ShardManifest.model_validate_json((plan.data / MANIFEST_NAME).read_bytes()).tokenizer.size
    steps = plan.steps // variant.batch_factor
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trainwright-variants-") as folder:
        job_file = write_job(
            Path(folder),
            plan,
            seed,
            model=model_of(variant, plan, vocabulary).model_dump(mode="json"),
            batch=plan.batch(plan.sequences * variant.batch_factor),
            schedule=plan.schedule(steps),
            optimizer={"learning_rate": float(rate), **variant.optimizer},
            precision={"kind": "fp32"},
        )
        made = build_job(job_file)
        learn(made, steps)
        return validation_loss(made)
