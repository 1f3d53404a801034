"""A loss or gradient that is not finite: an error that does not repeat leaves no trace. One that does ends the attempt
and names its batch, and the next attempt continues after that batch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.jobs import build_here, events, losses, resume_from, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.mesh import Mesh, make_mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import DivergedError
from trainwright_trainer.training.build import Training, build
from trainwright_trainer.training.engine import StepMetrics
from trainwright_trainer.training.loop import train
from trainwright_trainer.training.skipped_steps import SkippedSteps

BAD_STEP = 18
"""After the 16 steps in which delayed scales are learned."""

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"kind": "fp32"},
    "bf16": {"kind": "bf16"},
    "O1": {"kind": "fp8", "fp8": {"level": "O1"}},
    "O2, delayed": {"kind": "fp8", "fp8": {"level": "O2", "amax": "delayed"}},
    "O3, delayed": {"kind": "fp8", "fp8": {"level": "O3", "amax": "delayed"}},
}


def _spoil_once(training: Training, rank: int = 0) -> list[int]:
    """Make one activation of ``BAD_STEP`` infinite when it is first computed, on one rank. Returns the steps at which
    that was done."""
    done: list[int] = []

    def spoil(_: nn.Module, __: Any, output: torch.Tensor) -> torch.Tensor:
        if training.mesh.rank != rank or training.step != BAD_STEP - 1 or done:
            return output
        done.append(BAD_STEP)
        spoiled = output.clone()
        spoiled[0, 0, 0] = torch.inf
        return spoiled

    blocks = [
        block for name, block in training.engine.model.named_modules() if re.fullmatch(r"layers\.\d+", name)
    ]
    blocks[-1].register_forward_hook(spoil)
    return done


def _state(training: Training) -> dict[str, torch.Tensor]:
    return {item.name: item.tensor.clone() for item in training.engine.updater.state()}


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_error_that_does_not_repeat_leaves_no_trace(tmp_path: Path, data: Path, precision: str) -> None:
    job_files = [
        write_job(tmp_path / name, data, precision=PRECISIONS[precision]) for name in ("good", "bad")
    ]
    good, bad = (build_here(job_file) for job_file in job_files)
    done = _spoil_once(bad)
    train(good)
    train(bad)
    assert done == [BAD_STEP]
    assert losses(job_files[0]) == losses(job_files[1])
    states = _state(good), _state(bad)
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name].float(), states[1][name].float()) for name in states[0])
    notes = [[note["message"] for note in events(job_file, "note")] for job_file in job_files]
    (note,) = [message for message in notes[1] if message not in notes[0]]
    assert note.startswith(f"Step {BAD_STEP} was computed again: the loss was ")
    assert "hardware may be faulty" in note


LAYOUTS = {
    "data 2": (Degrees(replicas=2), {"data": 2}, {}),
    "ZeRO 3": (Degrees(replicas=2), {"data": 2, "zero_stage": 3}, {}),
    "tensor 2": (Degrees(tensor=2), {"tensor": 2}, {}),
    "pipeline 2": (Degrees(pipeline=2), {"pipeline": 2}, {}),
    "data 2, O2": (Degrees(replicas=2), {"data": 2}, PRECISIONS["O2, delayed"]),
}


def _train_rank(mesh: Mesh, job_file: Path, spoil: bool) -> None:
    training = build(read_job(job_file), job_file, make_mesh(mesh.rank, mesh.degrees, mesh.device))
    if spoil:
        done = _spoil_once(training, rank=mesh.ranks - 1)
    train(training)
    if spoil and mesh.rank == mesh.ranks - 1:
        assert done == [BAD_STEP]


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_ranks_compute_the_step_again_if_one_had_the_error(
    tmp_path: Path, data: Path, layout: str
) -> None:
    degrees, parallelism, precision = LAYOUTS[layout]
    sections: dict[str, Any] = {"parallelism": parallelism}
    if precision:
        sections["precision"] = precision
    found = []
    for name in ("good", "bad"):
        job_file = write_job(tmp_path / name, data, degrees.ranks, **sections)
        output_folder(job_file).mkdir()
        on_mesh(degrees, _train_rank, job_file, name == "bad")
        found.append(losses(job_file))
    assert found[0] == found[1]


@pytest.mark.slow(target="layouts")
def test_the_next_attempt_skips_the_data_on_which_the_run_diverged(tmp_path: Path, data: Path) -> None:
    straight = build_here(write_job(tmp_path / "straight", data))
    train(straight)
    point = resume_from(tmp_path / "straight/out/checkpoints/step-10", tmp_path / "resumed")
    point["resume"]["sequences_read"] = 13 * 8
    resumed = build_here(write_job(tmp_path / "resumed", data, job=point))
    assert (resumed.step, resumed.loader.sequences_read(10)) == (10, 13 * 8)
    behind = [batch.sequences for batch in resumed.loader.micro_batches(11)]
    usual = [batch.sequences for batch in straight.loader.micro_batches(14)]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(behind, usual, strict=True))
    train(resumed)
    saved = json.loads((tmp_path / "resumed/out/checkpoints/step-20/manifest.json").read_bytes())
    assert (saved["state"]["sequences"], saved["state"]["tokens"]) == (
        23 * 8,
        straight.spec.tokens_per_step * 20,
    )


@pytest.mark.slow(target="layouts")
def test_data_before_the_checkpoint_is_not_skipped_again(tmp_path: Path, data: Path) -> None:
    train(build_here(write_job(tmp_path / "straight", data)))
    point = resume_from(tmp_path / "straight/out/checkpoints/step-10", tmp_path / "resumed")
    point["resume"]["sequences_read"] = 9 * 8
    assert build_here(write_job(tmp_path / "resumed", data, job=point)).loader.sequences_read(10) == 10 * 8


@pytest.mark.parametrize(
    ("loss", "norm", "tensor", "cause"),
    [
        (float("nan"), float("nan"), "norm.weight:weight", "the loss was nan, first in norm.weight:weight"),
        (2.5, float("inf"), None, "the gradient norm was inf"),
    ],
)
def test_the_cause_of_a_divergence_is_short(loss: float, norm: float, tensor: str | None, cause: str) -> None:
    metrics = StepMetrics(loss, norm, non_finite_tensor=tensor, repeated=True)
    with pytest.raises(DivergedError, match="also when computed again") as raised:
        SkippedSteps(limit=0).record(metrics)
    assert raised.value.cause == cause
