"""A training that should stop saves and exits on all ranks after one step, and resumes as if uninterrupted."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.selection import partly_slow
from tests.trainer.jobs import events, losses, read_out, resume_from, run_trainer, trainer, write_job
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import STOP_NAME, Outcome, output_folder
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training.build import build
from trainwright_trainer.training.loop import train

STEPS = 8
AT_STEP = 5
SHAPE: dict[str, Any] = {
    "schedule": {"steps": STEPS, "warmup_steps": 2},
    "batch": {"sequence_tokens": 32, "micro_sequences": 1, "global_sequences": 4},
    "model": {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "tied_embeddings": False},
    "checkpoint": {"every_steps": 100},
}
FP8 = {"kind": "fp8", "fp8": {"level": "O2"}}

LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "one process": (1, {}),
    "data": (2, {}),
    "fp8": (2, {"precision": FP8}),
    "tensor": (2, {"parallelism": {"tensor": 2}}),
    "stages": (2, {"parallelism": {"pipeline": 2}}),
    "stages and tensor": (4, {"parallelism": {"pipeline": 2, "tensor": 2}}),
    "zero 1": (2, {"parallelism": {"zero_stage": 1, "shard": 2}}),
    "zero 2": (2, {"parallelism": {"zero_stage": 2, "shard": 2}}),
    "zero 3": (2, {"parallelism": {"zero_stage": 3, "shard": 2}}),
    "deepspeed": (2, {"parallelism": {"engine": "deepspeed", "zero_stage": 2}}),
}
IN_MAKE_TEST = ("one process",)


def _train(mesh: Mesh, job_file: Path, stop_from: int | None) -> Outcome:
    """Train the job. From step ``stop_from`` on, rank 0 tells all ranks to stop."""
    looks = 0

    def should_stop() -> bool:
        nonlocal looks
        looks += 1  # once before the first step, then once in each
        return mesh.rank == 0 and stop_from is not None and looks > stop_from

    output_folder(job_file).mkdir(exist_ok=True)
    return train(build(read_job(job_file), job_file, mesh), should_stop)


def _on_ranks(function: Callable[..., Any], job_file: Path, *arguments: Any) -> Any:
    """Result of ``function``, which all ranks must return alike."""
    results = on_mesh(read_job(job_file).spec.degrees, function, job_file, *arguments)
    assert all(result == results[0] for result in results)
    return results[0]


def _pause_and_resume(
    mesh: Mesh, straight: Path, paused: Path, resumed: Callable[..., Path]
) -> list[Outcome]:
    """Train a job to the end; then one that is paused, and ``resumed`` from its checkpoint."""
    results = [_train(mesh, straight, None), _train(mesh, paused, AT_STEP)]
    folder = paused.parent.with_name("resumed")
    if mesh.rank == 0:
        checkpoint = output_folder(paused) / f"checkpoints/step-{AT_STEP}"
        output_folder(resumed(folder, job=resume_from(checkpoint, folder))).mkdir()
    mesh.world.barrier()
    return [*results, _train(mesh, folder / "job.json", None)]


def _checkpoints(job_file: Path) -> list[str]:
    return sorted(path.name for path in (output_folder(job_file) / "checkpoints").glob("*"))


@pytest.mark.parametrize("layout", partly_slow(LAYOUTS, IN_MAKE_TEST))
def test_all_ranks_exit_after_one_step_and_the_losses_are_the_same(
    tmp_path: Path, data: Path, layout: str
) -> None:
    if layout == "deepspeed":
        pytest.importorskip("deepspeed")
    ranks, sections = LAYOUTS[layout]
    job = partial(write_job, shards=data, ranks=ranks, **SHAPE | sections)
    straight, paused = job(tmp_path / "straight"), job(tmp_path / "paused")
    outcomes = _on_ranks(_pause_and_resume, straight, paused, job)
    assert [(outcome.code, outcome.step) for outcome in outcomes] == [
        ("finished", STEPS),
        ("saved", AT_STEP),
        ("finished", STEPS),
    ]
    assert _checkpoints(paused) == [f"step-{AT_STEP}"]
    assert losses(paused) + losses(tmp_path / "resumed/job.json") == losses(straight)


@pytest.mark.parametrize(
    ("stop_from", "code", "step", "saved"),
    [
        (0, "saved", 0, []),
        (4, "saved", 4, [4]),
        (STEPS - 1, "saved", STEPS - 1, [4, 7]),
        (STEPS, "finished", STEPS, [4, 8]),
    ],
)
def test_a_pause_saves_one_checkpoint_and_only_of_trained_steps(
    tmp_path: Path, data: Path, stop_from: int, code: str, step: int, saved: list[int]
) -> None:
    job_file = write_job(tmp_path, data, ranks=2, **SHAPE | {"checkpoint": {"every_steps": 4}})
    outcome = _on_ranks(_train, job_file, stop_from)
    assert (outcome.code, outcome.step) == (code, step)
    assert [event["step"] for event in events(job_file, "checkpoint_saved")] == saved
    assert len(events(job_file, "finished")) == (code == "finished")


@pytest.mark.slow(target="layouts")
def test_a_stop_file_ends_a_launch_successfully_with_a_checkpoint(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, ranks=2, schedule={"steps": 1_000_000})
    with trainer("train", job_file) as launcher:
        _wait_until(lambda: len(losses(job_file)) > 3)
        (tmp_path / STOP_NAME).touch()
        launcher.communicate(timeout=60)
    assert launcher.returncode == 0
    outcome, steps = read_out(job_file, "outcome.json"), len(losses(job_file))
    assert (outcome["code"], outcome["step"]) == ("saved", steps)
    assert events(job_file, "checkpoint_saved")[-1]["step"] == steps
    assert not list(output_folder(job_file).glob("*failure*"))


@pytest.mark.slow(target="layouts")
def test_a_stop_file_at_the_start_prevents_training(tmp_path: Path, data: Path) -> None:
    (tmp_path / STOP_NAME).touch()
    job_file = write_job(tmp_path, data, ranks=2)
    assert run_trainer("train", job_file) == 0
    assert (read_out(job_file, "outcome.json")["code"], losses(job_file)) == ("saved", [])
    assert _checkpoints(job_file) == []


def _wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not hold in time"
        time.sleep(0.01)
