"""Jobs for the trainer's tests: a tiny model, a folder of real files, and functions to run them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from trainwright.contracts.checkpoint import CheckpointManifest, digest_of
from trainwright.contracts.job_spec import RankExits, output_folder
from trainwright_trainer.distributed.mesh import single_rank_mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import Training, build
from trainwright_trainer.training.loop import train

TINY = {
    "name": "tiny",
    "seed": 7,
    "data": {"dataset": "local", "tokenizer": {"kind": "bytes"}, "validation_fraction": 0.1},
    "model": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "tied_embeddings": True},
    "batch": {"sequence_tokens": 32, "micro_sequences": 2, "global_sequences": 8},
    "optimizer": {"learning_rate": 3e-3},
    "schedule": {"steps": 20, "warmup_steps": 4},
    "validation": {"every_steps": 10, "sequences": 8},
    "precision": {"kind": "fp32"},
    "checkpoint": {"every_steps": 10},
}

PATIENCE_SECONDS = 400
"""How long a training of a test may take: this ends one that hangs, and does not judge the machine."""


def write_job(
    folder: Path,
    shards: Path,
    ranks: int = 1,
    job: dict[str, Any] | None = None,
    nodes: int = 1,
    **sections: Any,
) -> Path:
    """Create a job's folder; ``sections`` override those of the tiny spec. Returns its ``job.json``.

    Args:
        folder: of the job.
        shards: of its data.
        ranks: on each node.
        job: fields of the job that differ from those of the tiny one.
        nodes: of the run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "data").exists():
        (folder / "data").symlink_to(shards)
    spec = {name: _over(TINY.get(name), section) for name, section in (TINY | sections).items()}
    spec["resources"] = {"device": "cpu", "slots_per_node": ranks, "nodes": nodes}
    given = {
        "run_id": "run_test",
        "attempt": 1,
        "fence": 1,
        "device": "cpu",
        "slots": list(range(ranks)),
        "nodes": nodes,
        "spec": spec,
    }
    path = folder / "job.json"
    path.write_text(json.dumps(given | (job or {})))
    return path


def resume_from(checkpoint: Path, folder: Path) -> dict[str, Any]:
    """Put ``checkpoint`` into a job's folder. Returns the job's description of it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "resume").symlink_to(checkpoint)
    content = (checkpoint / "manifest.json").read_bytes()
    step = CheckpointManifest.model_validate_json(content).step
    return {"resume": {"step": step, "digest": digest_of(content)}}


def build_here(job_file: Path, device: str = "cpu") -> Training:
    """Build a one-rank training in this process."""
    torch.set_num_threads(1)
    output_folder(job_file).mkdir(exist_ok=True)
    return build(read_job(job_file), job_file, single_rank_mesh(torch.device(device)))


def train_here(job_file: Path, device: str = "cpu") -> Training:
    """Run a one-rank job to completion in this process."""
    training = build_here(job_file, device)
    train(training)
    return training


def trainer(*arguments: object, **environment: str) -> subprocess.Popen[bytes]:
    """Start the trainer's command line in a separate process."""
    command = [sys.executable, "-m", "trainwright_trainer.main", *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE)


def run_trainer(*arguments: object, **environment: str) -> int:
    """Run the trainer's command line to completion. Returns the exit code."""
    with trainer(*arguments, **environment) as process:
        process.communicate(timeout=PATIENCE_SECONDS)
        return process.returncode


def events(job_file: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one type that the job has written so far, without an incomplete last line."""
    path = output_folder(job_file) / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    parsed = [json.loads(line) for line in lines if line.endswith("\n")]
    return [event for event in parsed if event["type"] == kind]


def losses(job_file: Path) -> list[float]:
    """Losses of the steps that were not skipped."""
    values = [event["values"] for event in events(job_file, "step")]
    return [measured["loss"] for measured in values if "loss" in measured]


def read_out(job_file: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output_folder(job_file) / name).read_text())
    return content


def read_exits(job_file: Path) -> RankExits:
    return RankExits.model_validate(read_out(job_file, "ranks.json"))


def _over(base: Any, section: Any) -> Any:
    return base | section if isinstance(base, dict) and isinstance(section, dict) else section
