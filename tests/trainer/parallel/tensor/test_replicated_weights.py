"""Gradients of weights that tensor ranks replicate are summed over them in one collective per step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.jobs import write_job
from tests.trainer.ranks import on_mesh
from tests.trainer.zero_trainings import BASE, one_step, start
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.rank_progress import AxisName
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.parallel.tensor.replicated_weights import sum_over_ranks
from trainwright_trainer.process.job_file import read_job


def summed(mesh: Mesh) -> list[Tensor]:
    parts = [torch.full((3, 2), mesh.rank + 1.0), torch.arange(5.0) * (mesh.rank + 1)]
    sum_over_ranks(parts, mesh.tensor)
    rounded = torch.full((4,), 2.0**-9 if mesh.rank else 1.0).bfloat16()
    sum_over_ranks([rounded], mesh.tensor)
    sum_over_ranks([], mesh.tensor)
    return [*parts, rounded]


def test_parts_are_summed_in_their_memory_and_rounded_once() -> None:
    for first, second, rounded in on_mesh(Degrees(tensor=4), summed):
        assert torch.equal(first, torch.full((3, 2), 10.0))
        assert torch.equal(second, torch.arange(5.0) * 10)
        # Each of three terms of 2⁻⁹ alone would be rounded away; 1 + 3 · 2⁻⁹ is rounded to 1 + 2⁻⁷.
        assert torch.equal(rounded, torch.full((4,), 1 + 2.0**-7).bfloat16())


def count_sums(mesh: Mesh, job_file: Path) -> tuple[int, int]:
    """The collectives of a step that sum over tensor ranks: in its passes, and after them."""
    training = start(mesh, job_file)
    counts = {True: 0, False: 0}
    in_passes = True
    real, wait = Axis.all_reduce, training.engine.updater.wait_for_gradients

    def counting(axis: Axis, tensor: Tensor) -> Tensor:
        counts[in_passes] += axis.name == AxisName.TENSOR and axis.ranks > 1
        return real(axis, tensor)

    def waiting() -> None:
        nonlocal in_passes
        in_passes = False
        wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Axis, "all_reduce", counting)
        patch.setattr(training.engine.updater, "wait_for_gradients", waiting)
        one_step(training, 1)
    return counts[True], counts[False]


in_make_layouts = pytest.mark.slow(target="layouts")

FP8: dict[str, Any] = {"kind": "fp8", "compile": "off", "fp8": {"level": "O2"}}


@pytest.mark.parametrize(
    ("parallelism", "precision", "sums"),
    [
        ({"tensor": 2}, {"kind": "fp32"}, [(0, 1)] * 2),
        pytest.param({"tensor": 2, "zero_stage": 1}, {"kind": "fp32"}, [(0, 1)] * 4, marks=in_make_layouts),
        # One of the data ranks owns all of these weights.
        pytest.param(
            {"tensor": 2, "zero_stage": 2},
            {"kind": "fp32"},
            [(0, 1)] * 2 + [(0, 0)] * 2,
            marks=in_make_layouts,
        ),
        pytest.param({"tensor": 2, "zero_stage": 3}, {"kind": "fp32"}, [(0, 1)] * 4, marks=in_make_layouts),
        # In the only bucket's reduction; after the passes, the counts of values that were too large.
        ({"tensor": 2}, FP8, [(1, 1)] * 2),
    ],
)
def test_a_step_sums_the_gradients_of_all_replicated_weights_at_once(
    parallelism: dict[str, Any],
    precision: dict[str, Any],
    sums: list[tuple[int, int]],
    tmp_path: Path,
    data: Path,
) -> None:
    sections = BASE | {"model": {"layers": 3, "width": 64, "kv_heads": 4}}
    job = write_job(tmp_path, data, len(sums), parallelism=parallelism, precision=precision, **sections)
    assert on_mesh(read_job(job).spec.degrees, count_sums, job) == sums
