"""Small trainings on real text, which have seed, data and order in common and differ in one thing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from infra.demo import write_documents
from trainwright.contracts.data_spec import DataSpec, TokenizerKind, TokenizerSpec
from trainwright.contracts.job_spec import DATA_FOLDER, JOB_NAME, output_folder
from trainwright.contracts.token_shards import MANIFEST_NAME, ShardManifest
from trainwright.prepare.documents import Source
from trainwright.prepare.token_shards import prepare_folder

Losses = dict[str, list[float]]
"""Final validation losses by variant and seed."""


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

    def batch(self, sequences: int) -> dict[str, int]:
        """The section of a batch of ``sequences``, which is one micro batch."""
        return {
            "sequence_tokens": self.sequence_tokens,
            "micro_sequences": sequences,
            "global_sequences": sequences,
        }

    def schedule(self, steps: int) -> dict[str, int]:
        """The section of a schedule of ``steps`` with a tenth of them for the warm-up."""
        return {"steps": steps, "warmup_steps": steps // 10}


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


def losses_by_seed(
    plan: Plan,
    variants: Sequence[str],
    train: Callable[[tuple[Plan, int, str]], float],
    processes: int,
    minutes: float = math.inf,
) -> Losses:
    """Train all variants, seed by seed; each loss is printed when it is known.

    Args:
        train: one training, by plan, seed and variant, in a process of its own; returns its loss.
        minutes: no further seed is started afterwards, but at least two are trained.
    """
    until = time.monotonic() + 60 * minutes
    found: Losses = {variant: [] for variant in variants}
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for made, seed in enumerate(plan.seeds):
            if made >= 2 and time.monotonic() > until:
                print(f"{minutes:g} minutes are over after {made} seeds", flush=True)
                break
            trainings = [(plan, seed, variant) for variant in variants]
            for variant, loss in zip(variants, pool.map(train, trainings), strict=True):
                print(f"seed {seed}, {variant}: {loss:.4f}", flush=True)
                found[variant].append(loss)
    return found


def write_job(folder: Path, plan: Plan, seed: int, **sections: Any) -> Path:
    """Write the folder of one training; ``sections`` override the spec. Returns its ``job.json``."""
    tokenizer = ShardManifest.model_validate_json((plan.data / MANIFEST_NAME).read_bytes()).tokenizer
    (folder / DATA_FOLDER).symlink_to(plan.data.resolve())
    job_file = folder / JOB_NAME
    output_folder(job_file).mkdir()
    spec = {
        "name": "paired",
        "seed": seed,
        "data": {"dataset": "python", "tokenizer": tokenizer.model_dump(mode="json")},
        "model": plan.model,
        "batch": plan.batch(plan.sequences),
        "optimizer": {"learning_rate": plan.learning_rate},
        "schedule": plan.schedule(plan.steps),
        "validation": {"sequences": plan.validation_sequences},
        "resources": {"device": "cpu"},
    }
    job = {"run_id": "paired", "attempt": 1, "fence": 1, "device": "cpu", "slots": [0]}
    job_file.write_text(json.dumps(job | {"spec": spec | sections}))
    return job_file
