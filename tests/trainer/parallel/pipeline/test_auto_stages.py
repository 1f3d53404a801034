"""``stages: auto`` measures its ranks, and all of them choose the same split."""

import os
import time
from pathlib import Path

import pytest
import torch

from tests.benchmarks.harness.cpu_quota import cpu_quota, join
from tests.benchmarks.report.results import RefusedError
from tests.trainer.jobs import events, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright.contracts.run_spec import RunSpec
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.parallel.pipeline import auto_stages
from trainwright_trainer.parallel.pipeline.auto_stages import (
    StageChoice,
    choose_stages,
    group_speeds,
    matmul_speed,
)
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import BadJobError
from trainwright_trainer.training.build import build


def spec_of(pipeline: int, ranks: int, layers: int = 8) -> RunSpec:
    return RunSpec.model_validate(
        {
            "name": "auto",
            "data": {"dataset": "ds_1", "tokenizer": {"kind": "bytes"}},
            "model": {"layers": layers, "width": 64, "heads": 4},
            "batch": {"sequence_tokens": 64, "micro_sequences": 2, "global_sequences": 64},
            "precision": {"kind": "fp32"},
            "resources": {"slots_per_node": ranks},
            "parallelism": {"pipeline": pipeline, "stages": "auto"},
        }
    )


def choose_with_speeds(mesh: Mesh, spec: RunSpec, speeds: list[float]) -> StageChoice:
    """Choose stages as if global rank i had the i-th speed."""
    return choose_stages(spec, mesh, lambda *_: speeds[mesh.rank])


def test_equal_ranks_get_equal_stages() -> None:
    found = on_mesh(Degrees(pipeline=2), choose_with_speeds, spec_of(2, 2), [100.0, 95.0])
    assert [item.layers for item in found] == [(4, 4), (4, 4)]
    assert found[0].note == ("The stages have 4, 4 layers: all pipeline ranks are equally fast.")


def test_a_stage_is_as_fast_as_its_slowest_rank_and_all_ranks_agree() -> None:
    # Ranks 0 and 1 have the first stage, 2 and 3 the second; only rank 1 is slow.
    found = on_mesh(
        Degrees(pipeline=2, replicas=2), choose_with_speeds, spec_of(2, 4), [90.0, 30.0, 90.0, 90.0]
    )
    assert {item.layers for item in found} == {(2, 6)}
    assert found[0].note == "The stages have 2, 6 layers: pipeline rank 0 at 33% of the fastest rank's speed."


def test_nearly_equal_speeds_count_as_equal() -> None:
    assert group_speeds([1.0, 0.95, 0.91]) == [1.0, 1.0, 1.0]
    assert group_speeds([0.5, 1.0, 0.46, 0.8]) == pytest.approx([0.5, 1.0, 0.5, 0.8])


def a_quarter_of_the_time(mesh: Mesh, spec: RunSpec) -> float:
    """This rank's measured speed when rank 1 may compute only a quarter of the time."""
    torch_mm = torch.mm
    if mesh.rank == 1:

        def slow(*given: torch.Tensor, **into: torch.Tensor) -> torch.Tensor:
            began = time.perf_counter()
            out = torch_mm(*given, **into)
            time.sleep(3 * (time.perf_counter() - began))
            return out

        torch.mm = slow
    return matmul_speed(spec, mesh.device)


def choose_under_cpu_quota(mesh: Mesh, spec: RunSpec, group: Path) -> StageChoice:
    """Choose by measuring when rank 0 is limited to the CPU quota of ``group``."""
    if mesh.rank == 0:
        join(group)
    return choose_stages(spec, mesh)


def test_a_rank_that_is_slowed_by_a_cpu_quota_gets_fewer_layers() -> None:
    try:
        with cpu_quota(0.04) as group:
            slowed, free = on_mesh(Degrees(pipeline=2), choose_under_cpu_quota, spec_of(2, 2), group)
    except RefusedError as error:
        assert "quota" in str(error) or "control group" in str(error), (
            "the message says what this machine lacks"
        )
        # Neither a pass nor a skip: a skip would fail the tests of anyone who is not root.
        pytest.xfail(str(error))
    assert slowed.layers == free.layers and slowed.layers[0] < slowed.layers[1]
    assert "pipeline rank 0 at" in slowed.note


def test_a_rank_that_computes_a_quarter_of_the_time_is_measured_as_slower() -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("two ranks on one core disturb each other")
    fast, slow = on_mesh(Degrees(pipeline=2), a_quarter_of_the_time, spec_of(2, 2))
    assert slow < 0.6 * fast


def too_small(mesh: Mesh, spec: RunSpec) -> str:
    auto_stages.usable_bytes = lambda _: 1_000_000 if mesh.rank == 1 else 10**9
    with pytest.raises(BadJobError) as caught:
        choose_stages(spec, mesh)
    return str(caught.value)


def test_a_stage_that_does_not_fit_ends_the_job_with_its_number_and_bytes() -> None:
    for message in on_mesh(Degrees(pipeline=2), too_small, spec_of(2, 2)):
        assert "stage 1 with 1 layers needs" in message and "which has 1,000,000" in message


def layers_here(mesh: Mesh, job_file: Path) -> list[str]:
    return list(build(read_job(job_file), job_file, mesh).engine.model.layers)


@pytest.mark.slow(target="layouts")
def test_a_run_splits_its_model_as_chosen_and_reports_it(tmp_path: Path, data: Path) -> None:
    job_file = write_job(
        tmp_path / "job",
        data,
        2,
        model={"layers": 5},
        batch={"micro_sequences": 1, "global_sequences": 4},
        parallelism={"pipeline": 2, "stages": "auto"},
    )
    output_folder(job_file).mkdir()
    first, second = on_mesh(Degrees(pipeline=2), layers_here, job_file)
    assert first + second == [str(layer) for layer in range(5)] and first and second
    [note] = events(job_file, "note")
    assert note["message"].startswith(f"The stages have {len(first)}, {len(second)} layers: ")
