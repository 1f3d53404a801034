"""Ranks that have a tensor alike divide the work: those of a node write some each, and one reads each and sends it to the others."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tests.trainer.jobs import resume_from, train_here, write_job
from tests.trainer.ranks import on_mesh, on_ranks
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.checkpoint import load
from trainwright_trainer.checkpoint.broadcast import fill, fill_on_all
from trainwright_trainer.checkpoint.load import read_checkpoint
from trainwright_trainer.distributed.axis import Axis
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.distributed.shard_spec import Slice
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.runtime.errors import CheckpointInvalidError
from trainwright_trainer.training.build import build

FP32 = {"kind": "fp32"}
_layouts = pytest.mark.slow(target="layouts")

LAYOUTS = [
    pytest.param(4, {}, FP32, id="data 4", marks=_layouts),
    pytest.param(4, {"tensor": 2}, FP32, id="data 2, tensor 2", marks=_layouts),
    pytest.param(4, {"pipeline": 2}, FP32, id="data 2, pipeline 2", marks=_layouts),
    pytest.param(4, {"zero_stage": 1, "shard": 2}, FP32, id="zero 1, 2 replicas of 2"),
    pytest.param(4, {"zero_stage": 2}, FP32, id="zero 2 over 4", marks=_layouts),
    pytest.param(4, {"zero_stage": 3, "shard": 2}, FP32, id="zero 3, 2 replicas of 2", marks=_layouts),
    pytest.param(
        2, {}, {"kind": "fp8", "fp8": {"level": "O2", "moments": "block"}}, id="O2 in blocks, data 2"
    ),
    pytest.param(2, {}, {"kind": "fp8", "fp8": {"level": "O3"}}, id="O3, data 2", marks=_layouts),
]


class Resumed(NamedTuple):
    """What one rank reports."""

    read_bytes: int
    """Bytes of the tensors that it read."""

    losses: list[float]
    """The loss of a step after resuming, and the loss of the same step if each rank reads for itself."""


def _resume(mesh: Mesh, job_file: Path) -> Resumed:
    read_bytes, right = 0, load.read_stored

    def count(folder: Path, manifest: Any, name: str, box: Slice) -> Tensor:
        nonlocal read_bytes
        stored = right(folder, manifest, name, box)
        read_bytes += prod(stored.shape) * stored.itemsize
        return stored

    def each_reads(target: Tensor, read: Callable[[], Tensor], _: Axis) -> None:
        fill(target, read())

    with patch.object(load, "read_stored", count):
        sent = _step(mesh, job_file)
    with patch.object(load, "fill_on_all", each_reads):
        return Resumed(read_bytes, [sent, _step(mesh, job_file)])


def _step(mesh: Mesh, job_file: Path) -> float:
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    timer = StepTimer(mesh.device)
    timer.start()
    return training.engine.step(training.loader.micro_batches(training.step + 1), 1e-3, timer).loss


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize(("ranks", "parallelism", "precision"), LAYOUTS)
def test_ranks_together_read_a_checkpoint_once(
    tmp_path: Path, data: Path, ranks: int, parallelism: dict[str, Any], precision: dict[str, Any]
) -> None:
    """Except for what ranks of a pipeline or tensor group both have, and scales and vectors of FP8 runs: a few thousand
    bytes. If each rank reads for itself, the losses are the same."""
    sections: dict[str, Any] = {"precision": precision, "checkpoint": {"every_steps": 2}} | {
        "model": {"tied_embeddings": False}
    }
    trained = write_job(tmp_path / "trained", data, schedule={"steps": 2, "warmup_steps": 1}, **sections)
    train_here(trained)
    checkpoint = output_folder(trained) / "checkpoints/step-2"
    point = resume_from(checkpoint, tmp_path / "resumed")
    job_file = write_job(tmp_path / "resumed", data, ranks, point, parallelism=parallelism, **sections)
    results: list[Resumed] = on_mesh(read_job(job_file).spec.degrees, _resume, job_file)
    stored = sum(file.stat().st_size for file in checkpoint.glob("*.safetensors"))
    read = sum(result.read_bytes for result in results)
    assert 0.8 * stored < read < 1.25 * stored
    assert len({loss for result in results for loss in result.losses}) == 1


def _written(mesh: Mesh, job_file: Path) -> dict[str, int]:
    """Bytes of each slice that a rank writes, by name and offset."""
    output_folder(job_file).mkdir(exist_ok=True)
    training = build(read_job(job_file), job_file, mesh)
    state = training.engine.updater.state()
    return {f"{part.name} {part.box.offset}": part.tensor.nbytes for part in state}


@pytest.mark.parametrize(("ranks", "parallelism", "precision"), LAYOUTS)
def test_ranks_divide_what_they_all_have_and_write_it_once(
    tmp_path: Path, data: Path, ranks: int, parallelism: dict[str, Any], precision: dict[str, Any]
) -> None:
    sections: dict[str, Any] = {"precision": precision, "model": {"tied_embeddings": False}}
    alone = write_job(tmp_path / "alone", data, **sections)
    job_file = write_job(tmp_path / "together", data, ranks, parallelism=parallelism, **sections)
    degrees = read_job(job_file).spec.degrees
    [whole] = on_mesh(Degrees(), _written, alone)
    parts: list[dict[str, int]] = on_mesh(degrees, _written, job_file)
    names = [name for part in parts for name in part]
    assert len(names) == len(set(names)), "nothing is written twice"
    assert {name.split()[0] for name in names} == {name.split()[0] for name in whole}
    shares = [sum(part.values()) for part in parts]
    assert sum(shares) == sum(whole.values())
    assert max(shares) < 2 * sum(shares) / len(shares), shares


def _written_on_two_nodes(mesh: Mesh, job_file: Path) -> dict[str, int]:
    node = range(2) if mesh.rank < 2 else range(2, 4)
    return _written(replace(mesh, on_node=node), job_file)


def test_only_the_node_of_the_first_rank_writes_what_several_have(tmp_path: Path, data: Path) -> None:
    job_file = write_job(tmp_path, data, 4, precision=FP32)
    first, second, *others = on_mesh(read_job(job_file).spec.degrees, _written_on_two_nodes, job_file)
    assert first and second and not first.keys() & second.keys()
    assert others == [{}, {}]


def _refusal(mesh: Mesh, job_file: Path, checkpoint: Path, lost: str) -> str:
    """What a rank says of a checkpoint without one tensor."""
    updater = build(read_job(job_file), job_file, mesh).engine.updater
    manifest = read_checkpoint(checkpoint, None, None)
    tensors = {name: entry for name, entry in manifest.tensors.items() if name != lost}
    with pytest.raises(CheckpointInvalidError) as refused:
        load.restore(checkpoint, manifest.model_copy(update={"tensors": tensors}), updater, mesh)
    return str(refused.value)


def test_all_ranks_refuse_a_checkpoint_before_one_reads_it(tmp_path: Path, data: Path) -> None:
    sections: dict[str, Any] = {"precision": FP32, "checkpoint": {"every_steps": 2}}
    trained = write_job(tmp_path / "trained", data, schedule={"steps": 2, "warmup_steps": 1}, **sections)
    train_here(trained)
    job_file = write_job(tmp_path / "together", data, 2, **sections)
    degrees = read_job(job_file).spec.degrees
    of_last_rank = on_mesh(degrees, _written, job_file)[-1]
    lost = next(iter(of_last_rank)).split()[0]
    checkpoint = output_folder(trained) / "checkpoints/step-2"
    refusals = on_mesh(degrees, _refusal, job_file, checkpoint, lost)
    assert refusals == [
        "step-2: another rank found a tensor that does not fit this run",
        f"step-2: {lost} is missing",
    ]


def _fill(mesh: Mesh, error: Exception | None) -> tuple[type, str] | list[float]:
    def read() -> Tensor:
        assert mesh.rank == 0, "only the first rank reads"
        if error is not None:
            raise error
        return torch.arange(6.0).view(2, 3)

    targets = torch.zeros(2, 3), torch.zeros(3, 2).t()  # the second one is not contiguous
    try:
        for target in targets:
            fill_on_all(target, read, mesh.world)
    except (CheckpointInvalidError, OSError) as found:
        return type(found), str(found)
    assert torch.equal(*targets)
    return targets[0].flatten().tolist()


@pytest.mark.parametrize(
    "error",
    [CheckpointInvalidError("step-2: a slice is missing"), OSError("Input/output error"), None],
    ids=repr,
)
def test_all_ranks_get_what_the_first_one_reads_or_its_error(error: Exception | None) -> None:
    expected: Any = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] if error is None else (type(error), str(error))
    assert on_ranks(3, _fill, error) == [expected] * 3
