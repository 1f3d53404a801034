"""A training as users get it, on random tokens: a job folder, ``build``, and the loop's own step, timed.

Nothing of the trainer is copied here. Tokens come from a seed and lie in shards like any others; weights are the initial
ones, never zeros, on which products run faster than on numbers. What is left out of a run is validation and checkpoints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from trainwright.contracts.data_spec import TokenizerKind, TokenizerSpec
from trainwright.contracts.events import Step, TrainerEvent, Validation
from trainwright.contracts.job_spec import DATA_FOLDER, JOB_NAME, JobSpec, output_folder
from trainwright.contracts.model_spec import ModelSpec
from trainwright.contracts.shards import MANIFEST_NAME, Shard, ShardManifest, ShardSplit, TokenType
from trainwright.contracts.training_spec import BatchSpec
from trainwright.planner.flops import count_parameters, flops_per_token
from trainwright.planner.peaks import vendor_peak
from trainwright_trainer.build import Training, build
from trainwright_trainer.devices import number_by_bus
from trainwright_trainer.loop import _learn, _validate
from trainwright_trainer.mesh import alone
from trainwright_trainer.observe.memory import device_name
from trainwright_trainer.observe.throughput import StepClock


@dataclass(frozen=True)
class Shape:
    """A model and the batch that it is measured with."""

    model: ModelSpec
    vocabulary: int
    batch: BatchSpec

    @property
    def parameters(self) -> int:
        return count_parameters(self.model, self.vocabulary).total

    @property
    def tokens_per_step(self) -> int:
        return self.batch.global_sequences * self.batch.sequence_tokens

    @property
    def rounds(self) -> int:
        """Micro batches of a step on one rank."""
        return self.batch.global_sequences // self.batch.micro_sequences

    @property
    def flops_per_token(self) -> int:
        """6·N + 12·L·A·T: the mask of causal attention not subtracted."""
        return flops_per_token(self.model, self.vocabulary, self.batch.sequence_tokens)

    @property
    def causal_flops_per_token(self) -> int:
        """6·N + 6·L·A·T: what causal attention cannot do without."""
        model = self.model
        mixing = model.layers * model.heads * model.features_per_head * self.batch.sequence_tokens
        return self.flops_per_token - 6 * mixing

    def with_batch(self, micro_sequences: int, global_sequences: int) -> Shape:
        given = self.batch.model_copy(
            update={"micro_sequences": micro_sequences, "global_sequences": global_sequences}
        )
        return Shape(self.model, self.vocabulary, given)


@dataclass(frozen=True)
class Timing:
    """Steps of one training."""

    seconds: float
    """Median of the timed steps."""

    tokens_per_second: float
    """In the median step."""

    peak_bytes: int
    """The most that tensors occupied during all steps; on a CPU the process's resident memory."""

    build_peak_bytes: int
    """The same while the training was put together."""

    last_loss: float
    losses: tuple[float, ...]


def device() -> torch.device:
    number_by_bus()
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def write_tokens(folder: Path, vocabulary: int, tokens: int, seed: int = 0) -> None:
    """A preparation of one shard with random ids, described by a manifest like any other."""
    folder.mkdir(parents=True, exist_ok=True)
    token_type = TokenType.for_vocabulary(vocabulary)
    ids = np.random.default_rng(seed).integers(0, vocabulary, tokens)
    content = ids.astype(f"<u{token_type.bytes_per_token}").tobytes()
    (folder / "train-00000.bin").write_bytes(content)
    shard = Shard(
        name="train-00000.bin",
        digest=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        tokens=tokens,
        documents=1,
    )
    manifest = ShardManifest(
        tokenizer=TokenizerSpec(kind=TokenizerKind.BPE, vocabulary=vocabulary),
        end_of_text=vocabulary - 1,
        token_type=token_type,
        tokenizer_digest="",
        validation_fraction=0.0,
        train=ShardSplit(documents=1, tokens=tokens, shards=[shard]),
    )
    (folder / MANIFEST_NAME).write_text(manifest.model_dump_json())


def write_job(folder: Path, shape: Shape, steps: int, **sections: Any) -> Path:
    """The folder of a one-rank job on random tokens; ``sections`` are laid over the spec. Returns its ``job.json``."""
    if not (folder / DATA_FOLDER).exists():
        tokens = steps * shape.tokens_per_step + 1
        write_tokens(folder / DATA_FOLDER, shape.vocabulary, tokens)
    kind = device().type
    spec: dict[str, Any] = {
        "name": "benchmark",
        "data": {"dataset": "random", "tokenizer": {"vocabulary": shape.vocabulary}},
        "model": shape.model.model_dump(),
        "batch": shape.batch.model_dump(),
        "schedule": {"steps": steps, "warmup_steps": min(5, steps - 1)},
        "optimizer": {"learning_rate": 3e-4},
        "resources": {"device": kind},
    }
    job = JobSpec.model_validate(
        {"run_id": "benchmark", "attempt": 1, "fence": 1, "device": kind, "slots": [0]}
        | {"spec": spec | sections}
    )
    output_folder(folder / JOB_NAME).mkdir(parents=True, exist_ok=True)
    (folder / JOB_NAME).write_text(job.model_dump_json())
    return folder / JOB_NAME


def build_job(job_file: Path) -> Training:
    """Put the training of a one-rank job together, in this process."""
    job = JobSpec.model_validate_json(job_file.read_bytes())
    return build(job, job_file, alone(device()))


class Events:
    """Catches what a training reports."""

    def __init__(self, training: Training) -> None:
        self.steps: list[dict[str, float]] = []
        self.validations: list[float] = []
        training.report = self._take

    def _take(self, event: TrainerEvent) -> None:
        if isinstance(event, Step):
            self.steps.append(event.values)
        if isinstance(event, Validation):
            self.validations.append(event.values["validation_loss"])


def measure(folder: Path, shape: Shape, warm_up: int, timed: int, **sections: Any) -> Timing:
    """Make ``warm_up`` + ``timed`` steps of a fresh training; compilation falls into the warm-up."""
    with _tracked_memory() as built:
        training = build_job(write_job(folder, shape, warm_up + timed, **sections))
    with _tracked_memory() as used:
        steps = learn(training, warm_up + timed)
    seconds = median(step["seconds"] for step in steps[warm_up:])
    losses = tuple(step["loss"] for step in steps if "loss" in step)
    return Timing(
        seconds=seconds,
        tokens_per_second=shape.tokens_per_step / seconds,
        peak_bytes=used[0] or int(steps[-1]["memory_bytes"]),
        build_peak_bytes=built[0],
        last_loss=losses[-1],
        losses=losses,
    )


def learn(training: Training, steps: int) -> list[dict[str, float]]:
    """Make the training's next steps; returns what it reported of each."""
    events, clock = Events(training), StepClock(training.mesh.device)
    for step in range(training.step + 1, training.step + steps + 1):
        _learn(training, clock, step)
    return events.steps


def validation_loss(training: Training) -> float:
    """Mean over the sequences that the spec asks for, of the weights as they are now."""
    events = Events(training)
    _validate(training, training.step)
    return events.validations[-1]


def peak(dtype: str) -> float | None:
    """FLOP/s that the vendor states for this device; None for CPUs and unknown GPUs."""
    where = device()
    known = vendor_peak(device_name(where), dtype) if where.type == "cuda" else None
    return None if known is None else known.flops_per_second


@contextmanager
def _tracked_memory() -> Iterator[list[int]]:
    """The list gets the most bytes that tensors occupied meanwhile; 0 on a CPU."""
    found: list[int] = []
    on_gpu = device().type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    yield found
    found.append(torch.cuda.max_memory_allocated() if on_gpu else 0)
