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

import json
import math
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

import torch

from infra.demo import write_documents
from tests.benchmarks.trainer.timed_training import build_job, learn, validation_loss
from trainwright.contracts.data_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.job_spec import DATA_FOLDER, JOB_NAME, output_folder
from trainwright.contracts.token_shards import MANIFEST_NAME, ShardManifest
from trainwright.prepare.documents import Source
from trainwright.prepare.token_shards import prepare_folder
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
POWER = 0.8
_MOST_SEEDS = 1_000


@dataclass(frozen=True)
class Plan:
    """The trainings of one comparison."""

    data: Path
    """Folder of shards."""

    model: dict[str, Any]
    sequence_tokens: int = 128
    sequences: int = 16
    steps: int = 300
    seeds: tuple[int, ...] = tuple(range(1, 9))
    learning_rate: float = 1e-3
    validation_sequences: int = 512


@dataclass(frozen=True)
class Difference:
    """Differences to bfloat16 over seeds, in percent of its loss."""

    mean: float
    deviation: float
    """Standard deviation of one seed's difference."""

    seeds: int

    @classmethod
    def of(cls, percents: Sequence[float]) -> Difference:
        """Create from the difference of each seed; at least two."""
        return cls(mean(percents), stdev(percents), len(percents))

    @property
    def half_width(self) -> float:
        """Half the width of the 95 % interval."""
        return students_t(self.seeds - 1) * self.deviation / math.sqrt(self.seeds)

    @property
    def upper(self) -> float:
        return self.mean + self.half_width

    @property
    def lower(self) -> float:
        return self.mean - self.half_width

    def power(self, bound: float) -> float:
        """Probability that the upper end is within ``bound`` if there is no difference, with as many seeds of this deviation."""
        return power(self.deviation, self.seeds, bound)

    def __str__(self) -> str:
        return f"{self.mean:+.3f} % ± {self.half_width:.3f}"


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


@cache
def students_t(freedom: int) -> float:
    """Quantile 0.975 of Student's t with ``freedom`` degrees of freedom."""
    low, high = 1.9, 13.0  # the quantiles of a normal number and of 1 degree
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, freedom, 0.0) < 0.975 else (low, middle)
    return high


def power(deviation: float, seeds: int, bound: float) -> float:
    """Probability that the upper end of the interval of ``seeds`` numbers of mean 0 is at most ``bound``."""
    if deviation == 0:
        return 1.0
    return 1 - _below(students_t(seeds - 1), seeds - 1, bound * math.sqrt(seeds) / deviation)


def seeds_needed(deviation: float, bound: float) -> int | None:
    """The number of seeds that gives the required power; None if it is more than a thousand."""
    enough = range(2, _MOST_SEEDS)
    found = bisect_left(enough, True, key=lambda seeds: power(deviation, seeds, bound) >= POWER)
    return enough[found] if found < len(enough) else None


def _below(t: float, freedom: int, shift: float) -> float:
    """P((Z + shift) / S ≤ t), where Z is normal and S² is χ² over its degrees of freedom: the noncentral t.

    The integral of Φ(t s - shift) over the density of S, by the midpoint rule; beyond 1 + 9 / √(2 freedom)
    S has less than 10⁻⁸.
    """
    parts = 2_000
    width = (1 + 9 / math.sqrt(2 * freedom)) / parts
    log_factor = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    total = 0.0
    for part in range(parts):
        s = (part + 0.5) * width
        density = math.exp(log_factor + (freedom - 1) * math.log(s) - freedom * s * s / 2)
        total += density * (1 + math.erf((t * s - shift) / math.sqrt(2))) / 2
    return total * width


Losses = dict[str, list[float]]
"""Final validation losses by variant and seed."""


def losses(plan: Plan, processes: int, minutes: float = math.inf) -> Losses:
    """Train all variants, seed by seed; each loss is printed when it is known.

    Args:
        minutes: no further seed is started afterwards, but at least two are trained.
    """
    until = time.monotonic() + 60 * minutes
    found: Losses = {variant: [] for variant in VARIANTS}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for made, seed in enumerate(plan.seeds):
            if made >= 2 and time.monotonic() > until:
                print(f"{minutes:g} minutes are over after {made} seeds", flush=True)
                break
            trainings = [(plan, seed, variant) for variant in VARIANTS]
            for variant, loss in zip(VARIANTS, pool.map(_train, trainings), strict=True):
                print(f"seed {seed}, {variant}: {loss:.4f}", flush=True)
                found[variant].append(loss)
    return found


def differences(found: Losses) -> dict[str, Difference]:
    """The difference of each variant to ``bf16``."""
    return {
        variant: Difference.of(
            [100 * (one / base - 1) for one, base in zip(ends, found["bf16"], strict=True)]
        )
        for variant, ends in found.items()
        if variant != "bf16"
    }


def prepare_sources(folder: Path, vocabulary: int) -> Path:
    """Shards of Python's standard library, the demo's text; existing ones are reused."""
    shards = folder / f"python-{vocabulary}"
    if not (shards / MANIFEST_NAME).exists():
        folder.mkdir(parents=True, exist_ok=True)
        text = folder / "python.jsonl"
        write_documents(text)
        data = DataSpec(
            dataset="python",
            tokenizer=TokenizerSpec(kind=TokenizerKind.BPE, vocabulary=vocabulary),
            validation_fraction=0.03,
        )
        prepare_folder([Source(text.name, text)], data, shards)
    return shards


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
        made = build_job(write_job(Path(folder), plan, seed, plan.learning_rate, VARIANTS[variant]))
        loader = _Reversed(made.loader) if variant == "reversed" else made.loader
        with patch.object(made, "loader", loader):
            learn(made, plan.steps)
            return validation_loss(made)


def write_job(folder: Path, plan: Plan, seed: int, rate: float, precision: dict[str, Any]) -> Path:
    """The folder of one training; returns its ``job.json``."""
    tokenizer = ShardManifest.model_validate_json((plan.data / MANIFEST_NAME).read_bytes()).tokenizer
    (folder / DATA_FOLDER).symlink_to(plan.data.resolve())
    job_file = folder / JOB_NAME
    output_folder(job_file).mkdir()
    spec = {
        "name": "parity",
        "seed": seed,
        "data": {"dataset": "python", "tokenizer": tokenizer.model_dump(mode="json")},
        "model": plan.model,
        "batch": {
            "sequence_tokens": plan.sequence_tokens,
            "micro_sequences": plan.sequences,
            "global_sequences": plan.sequences,
        },
        "optimizer": {"learning_rate": rate},
        "schedule": {"steps": plan.steps, "warmup_steps": plan.steps // 10},
        "validation": {"sequences": plan.validation_sequences},
        "precision": precision,
        "resources": {"device": "cpu"},
    }
    job = {"run_id": "parity", "attempt": 1, "fence": 1, "device": "cpu", "slots": [0], "spec": spec}
    job_file.write_text(json.dumps(job))
    return job_file
