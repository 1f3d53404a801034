"""A real training on random tokens: a job folder, ``build``, and the loop's own step, timed.

Nothing of the trainer is copied. Tokens are seeded and stored in shards like any others. Weights have their initial values,
not zeros, because matmuls of zeros are faster. Validation and checkpoints are left out.
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
from trainwright.contracts.token_shards import MANIFEST_NAME, Shard, ShardManifest, ShardSplit, TokenType
from trainwright.contracts.training_spec import BatchSpec
from trainwright.planner.flops import count_parameters, flops_per_token
from trainwright.planner.memory import rank_memory
from trainwright.planner.peak_flops import vendor_peak
from trainwright_trainer.distributed.mesh import single_rank_mesh
from trainwright_trainer.observe.memory import device_name
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.runtime.devices import order_gpus_by_pci_bus
from trainwright_trainer.training.build import Training, build
from trainwright_trainer.training.loop import run_step, validate


@dataclass(frozen=True)
class Shape:
    """A model and its batch."""

    model: ModelSpec
    vocabulary: int
    batch: BatchSpec

    @property
    def parameters(self) -> int:
        return count_parameters(self.model, self.vocabulary, self.batch.sequence_tokens).total

    @property
    def tokens_per_step(self) -> int:
        return self.batch.global_sequences * self.batch.sequence_tokens

    @property
    def rounds(self) -> int:
        """Micro batches of a step on one rank."""
        return self.batch.global_sequences // self.batch.micro_sequences

    @property
    def flops_per_token(self) -> int:
        """6·N + 12·L·A·T, as if attention were not causal."""
        return flops_per_token(self.model, self.vocabulary, self.batch.sequence_tokens)

    @property
    def causal_flops_per_token(self) -> int:
        """6·N + 6·L·A·T: what causal attention needs."""
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
    """Time and memory of one training."""

    seconds: float
    """Median of the timed steps."""

    tokens_per_second: float
    """Tokens per second in the median step."""

    peak_bytes: int
    """Peak memory of tensors during all steps; on a CPU, the process's resident memory."""

    build_peak_bytes: int
    """The same while the training was built."""

    planned_bytes: int
    """What the planner expects of ``peak_bytes``."""

    last_loss: float
    losses: tuple[float, ...]


def device() -> torch.device:
    order_gpus_by_pci_bus()
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def write_tokens(folder: Path, vocabulary: int, tokens: int, seed: int = 0) -> None:
    """Write a preparation of one shard with random ids, and its manifest."""
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
    """Write the folder of a one-rank job on random tokens; ``sections`` override the spec. Returns its ``job.json``."""
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
    """Build the training of a one-rank job in this process."""
    job = JobSpec.model_validate_json(job_file.read_bytes())
    return build(job, job_file, single_rank_mesh(device()))


class Events:
    """Collects what a training reports."""

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
    """Make ``warm_up`` + ``timed`` steps of a new training; compilation is part of the warm-up."""
    with _tracked_memory() as built:
        job_file = write_job(folder, shape, warm_up + timed, **sections)
        training = build_job(job_file)
    with _tracked_memory() as used:
        steps = learn(training, warm_up + timed)
    seconds = median(step["seconds"] for step in steps[warm_up:])
    losses = tuple(step["loss"] for step in steps if "loss" in step)
    return Timing(
        seconds=seconds,
        tokens_per_second=shape.tokens_per_step / seconds,
        peak_bytes=used[0] or int(steps[-1]["memory_bytes"]),
        build_peak_bytes=built[0],
        planned_bytes=_planned_bytes(job_file),
        last_loss=losses[-1],
        losses=losses,
    )


def _planned_bytes(job_file: Path) -> int:
    """The planner's estimate for a job of one rank; GPUs compile."""
    spec = JobSpec.model_validate_json(job_file.read_bytes()).spec
    return rank_memory(spec, [spec.model.layers], 0, device().type == "cuda").total


def learn(training: Training, steps: int) -> list[dict[str, float]]:
    """Make the training's next steps; returns what it reported for each."""
    events, clock = Events(training), StepTimer(training.mesh.device)
    for step in range(training.step + 1, training.step + steps + 1):
        run_step(training, clock, step)
    return events.steps


def validation_loss(training: Training) -> float:
    """Validation loss of the current weights, over the spec's number of sequences."""
    events = Events(training)
    validate(training, training.step)
    return events.validations[-1]


def peak(dtype: str) -> float | None:
    """FLOP/s that the vendor states for this device; None for CPUs and unknown GPUs."""
    where = device()
    known = vendor_peak(device_name(where), dtype) if where.type == "cuda" else None
    return None if known is None else known.flops_per_second


@contextmanager
def _tracked_memory() -> Iterator[list[int]]:
    """A list that gets the peak bytes of tensors in the block; 0 on a CPU."""
    found: list[int] = []
    on_gpu = device().type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    yield found
    found.append(torch.cuda.max_memory_allocated() if on_gpu else 0)
