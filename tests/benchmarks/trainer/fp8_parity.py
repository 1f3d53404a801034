"""Does training in FP8 end at bfloat16's loss? Paired runs with the same seed, data and order; only precision differs.

Two trainings that differ by one rounding drift apart until they differ almost as much as two seeds. So one pair shows
nothing, and a difference means something only beside that of a control: bfloat16 against bfloat16 with the rows of each
micro batch reversed, the same arithmetic with sums in another order.

The result is the mean of the paired differences of the final validation loss in percent, over seeds and learning rates, with
its 95 % interval (Student's t). A level passes if the interval contains 0, or if its upper end is at most 0.25 %, or at most
1.5 times the control's spread: the distance from 0 to the further end of the control's interval.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
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
from trainwright.contracts.presets import PRESETS
from trainwright.contracts.shards import MANIFEST_NAME, ShardManifest
from trainwright.prepare.documents import Source
from trainwright.prepare.shards import prepare_folder
from trainwright_trainer.data.loader import Batch, Loader

VARIANTS: dict[str, dict[str, Any]] = {
    "bf16": {"kind": "bf16"},
    "reversed": {"kind": "bf16"},
    "O1": {"kind": "fp8", "fp8": {"level": "O1"}},
    "O2": {"kind": "fp8", "fp8": {"level": "O2"}},
    "O3": {"kind": "fp8", "fp8": {"level": "O3"}},
}
"""What is trained for each seed and learning rate; ``reversed`` is the control."""

LARGEST_PERCENT = 0.25
_CONTROL_FACTOR = 1.5

_T = (
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
)
"""Quantiles 0.975 of Student's t for 1, 2, … degrees of freedom."""


@dataclass(frozen=True)
class Plan:
    """The trainings of one comparison."""

    data: Path
    """Folder of shards."""

    model: dict[str, Any]
    sequence_tokens: int = 128
    sequences: int = 16
    steps: int = 300
    seeds: tuple[int, ...] = (1, 2, 3)
    learning_rates: tuple[float, ...] = (1e-3, 4e-3)
    validation_sequences: int = 512

    @property
    def pairs(self) -> list[tuple[int, float]]:
        return [(seed, rate) for seed in self.seeds for rate in self.learning_rates]


@dataclass(frozen=True)
class Difference:
    """Paired differences to bfloat16, in percent of its loss."""

    mean: float
    half_width: float
    """Of the 95 % interval."""

    @classmethod
    def of(cls, percents: list[float]) -> Difference:
        count = len(percents)
        return cls(mean(percents), _T[count - 2] * stdev(percents) / math.sqrt(count))

    @property
    def upper(self) -> float:
        return self.mean + self.half_width

    @property
    def spread(self) -> float:
        """Distance from 0 to the further end of the interval."""
        return abs(self.mean) + self.half_width

    def __str__(self) -> str:
        return f"{self.mean:+.3f} % ± {self.half_width:.3f}"


def why_it_passes(level: Difference, control: Difference) -> str | None:
    """The rule by which ``level`` passes, or None."""
    if level.upper <= LARGEST_PERCENT:
        return f"upper end at most {LARGEST_PERCENT} %"
    if abs(level.mean) <= level.half_width:
        return "the interval contains 0"
    if level.upper <= _CONTROL_FACTOR * control.spread:
        return f"upper end at most {_CONTROL_FACTOR} × the control's spread of {control.spread:.3f} %"
    return None


def losses(plan: Plan, processes: int) -> dict[str, list[float]]:
    """Final validation loss of each variant, by seed and learning rate; each is printed when it is known."""
    trainings = [(plan, *pair, variant) for pair in plan.pairs for variant in VARIANTS]
    found: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for (_, seed, rate, variant), loss in zip(trainings, pool.map(_train, trainings), strict=True):
            print(f"seed {seed}, learning rate {rate:g}, {variant}: {loss:.4f}", flush=True)
            found[variant].append(loss)
    return found


def differences(found: dict[str, list[float]]) -> dict[str, Difference]:
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


def plan_for(data: Path, preset: str, steps: int) -> Plan:
    return Plan(data, PRESETS[preset].model_dump(), steps=steps)


class _Reversed:
    """A loader whose micro batches have their rows in the opposite order."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def micro_batches(self, step: int) -> Iterator[Batch]:
        for batch in self._loader.micro_batches(step):
            yield Batch(batch.sequences.flip(0))


def _train(training: tuple[Plan, int, float, str]) -> float:
    """One complete training in this process."""
    plan, seed, rate, variant = training
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="trainwright-parity-") as folder:
        made = build_job(write_job(Path(folder), plan, seed, rate, VARIANTS[variant]))
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
