"""The two replicas of a tied weight, in the first and the last stage,
remain equal, regardless of the other weights of the stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.fp8.state.row_layout import view_of
from trainwright_trainer.fp8.state.updater import FP8Updater
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build

EMBEDDING = "embedding.weight"
STEPS = 5
DATA = 3
"""A sum of two numbers does not depend on their order. From three on it does, and so on their position in a buffer."""

RANKS = 2 * DATA

MODEL: dict[str, Any] = {"layers": 4, "width": 32, "heads": 4, "kv_heads": 4, "tied_embeddings": True}
"""The embedding is half of the first stage's weights, and a fifth of the last one's."""

LARGE_HEADS = MODEL | {"head_size": 128, "feed_forward": 64}
"""Attention weights are larger than the embedding, four in the first stage and twelve in the last.
By size alone, the embedding would get a different owner in each."""

LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "whole copies": (MODEL, {}),
    "ZeRO 1": (MODEL, {"zero_stage": 1}),
    "ZeRO 2": (MODEL, {"zero_stage": 2}),
    "ZeRO 2, large heads": (LARGE_HEADS, {"zero_stage": 2}),
    "O2": (MODEL, {}),
}
PRECISIONS: dict[str, dict[str, Any]] = {
    "O2": {"kind": "fp8", "compile": "off", "fp8": {"level": "O2", "scaling": "tensor"}}
}


@pytest.mark.slow(target="layouts")
def test_replicas_of_a_tied_weight_are_equal_bit_for_bit_in_unequal_stages(
    tmp_path: Path, data: Path
) -> None:
    jobs = [
        write_job(
            tmp_path / name,
            data,
            RANKS,
            model=model,
            precision=PRECISIONS.get(name, {"kind": "fp32"}),
            batch={"sequence_tokens": 16, "micro_sequences": 1, "global_sequences": 2 * DATA},
            parallelism={"pipeline": 2, "stages": (1, 3)} | parallelism,
        )
        for name, (model, parallelism) in LAYOUTS.items()
    ]
    by_rank = on_mesh(Degrees(replicas=RANKS), embeddings, jobs)
    apart = {
        name: [float((copy - copies[0]).abs().max()) for copy in copies]
        for name, copies in zip(LAYOUTS, zip(*by_rank, strict=True), strict=True)
    }
    assert apart == {name: [0.0] * RANKS for name in LAYOUTS}


def embeddings(world: Mesh, jobs: list[Path]) -> list[Tensor]:
    """What this rank has of the tied weight after each job's steps."""
    return [_embedding(world, job_file) for job_file in jobs]


def _embedding(world: Mesh, job_file: Path) -> Tensor:
    job = read_job(job_file)
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(job, job_file, make_mesh(world.rank, job.spec.degrees, torch.device("cpu")))
    timer = StepTimer(world.device)
    for step in range(1, STEPS + 1):
        timer.start()
        training.engine.step(training.loader.micro_batches(step), 3e-3, timer)
    updater = training.engine.updater
    if not isinstance(updater, FP8Updater):
        return dict(training.engine.model.named_parameters())[EMBEDDING].detach().clone()
    (slot,) = (slot for slot in updater.layout.slots if slot.name == EMBEDDING)
    master = updater.optimizer.master
    codes = view_of(master.codes, updater.layout.first_rows()[EMBEDDING], slot)
    return codes.float() * master.scale[slot.index]
