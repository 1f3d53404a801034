"""Exports: the memory that writing one takes, at the size of Yuan 2.0's smallest model, 2.1 billion parameters.

A checkpoint with random weights in float32 is written first, one weight after the other, so the machine need not have room for
the training. The memory is the peak of the process during the export, less what it had at the start.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from tests.benchmarks.platform.process_memory import reset_peak, status_mib
from tests.benchmarks.report.entries import Entry, at_most
from tests.benchmarks.trainer.timed_training import Shape, write_job
from trainwright.contracts.checkpoint import CheckpointKind, CheckpointManifest, TensorEntry, TensorSlice
from trainwright.contracts.job_spec import DATA_FOLDER, JobSpec
from trainwright.contracts.presets import PUBLISHED
from trainwright.contracts.run_spec import RunSpec
from trainwright.contracts.token_shards import TOKENIZER_NAME
from trainwright.contracts.training_spec import BatchSpec
from trainwright_trainer.checkpoint.export import export, weight_shapes
from trainwright_trainer.checkpoint.save import code_version, write_manifest
from trainwright_trainer.checkpoint.snapshot import config_digest
from trainwright_trainer.checkpoint.tensor_files import TensorShape, write_tensors_one_by_one
from trainwright_trainer.model.transformer import Transformer

ALLOWED_GIB = 3.0


def memory(toy: bool, folder: Path) -> dict[str, Entry]:
    """GiB that an export needs, next to what it may need."""
    preset = PUBLISHED["yuan-2-tiny" if toy else "yuan-2-2.1b"]
    folder = folder / "export"
    batch = BatchSpec(sequence_tokens=256, micro_sequences=1, global_sequences=1)
    job_file = write_job(folder, Shape(preset.model, preset.vocabulary, batch), steps=2)
    spec = JobSpec.model_validate_json(job_file.read_bytes()).spec
    Tokenizer(WordLevel({"<eot>": preset.vocabulary - 1}, unk_token="<eot>")).save(
        str(folder / DATA_FOLDER / TOKENIZER_NAME)
    )
    manifest = write_checkpoint(folder / "checkpoint", spec)
    digest = write_manifest(folder / "checkpoint", manifest.to_bytes())

    pid = os.getpid()
    reset_peak(pid)
    before = status_mib(pid, "VmRSS")
    export(folder / "checkpoint", manifest, digest, folder / DATA_FOLDER, spec, folder / "exported")
    needed = (status_mib(pid, "VmHWM") - before) / 1_024
    shutil.rmtree(folder)
    return {"export-memory": at_most(needed, ALLOWED_GIB, "GiB", 1.0, 1.0)}


def write_checkpoint(folder: Path, spec: RunSpec) -> CheckpointManifest:
    """Write the weights of a model, and describe them."""
    folder.mkdir()
    with torch.device("meta"):
        model = Transformer(spec.model, spec.data.tokenizer.size, spec.batch.sequence_tokens)
    weights = {f"model.{name}": shape for name, shape in weight_shapes(model).items()}
    file = write_tensors_one_by_one(
        folder / "rank-0.safetensors",
        {name: TensorShape(torch.float32, shape) for name, shape in weights.items()},
        lambda name: torch.randn(weights[name]),
    )
    return CheckpointManifest(
        kind=CheckpointKind.STATE,
        step=1,
        files=[file],
        config_digest=config_digest(spec),
        code_version=code_version(),
        tensors=_entries(weights, file.name),
    )


def _entries(weights: Mapping[str, tuple[int, ...]], file: str) -> dict[str, TensorEntry]:
    return {
        name: TensorEntry(
            shape=shape,
            dtype="float32",
            slices=[TensorSlice(file=file, offset=(0,) * len(shape), shape=shape)],
        )
        for name, shape in weights.items()
    }
