"""How a pipeline ends when a stage fails or its rank leaves."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch._inductor.config
from torch import Tensor

from tests.trainer.pipeline_trainings import ONE_F_ONE_B, staged, started_timer
from tests.trainer.ranks import on_mesh
from trainwright.contracts.job_spec import output_folder
from trainwright.contracts.parallelism_spec import Degrees
from trainwright_trainer.distributed.axis import RankLostError
from trainwright_trainer.distributed.mesh import Mesh
from trainwright_trainer.parallel.pipeline.torch_schedules import unwrap_stage_errors
from trainwright_trainer.process.job_file import read_job
from trainwright_trainer.training import build as build_module
from trainwright_trainer.training.build import build


def _exit_within_a_step(mesh: Mesh, job_file: Path) -> str | None:
    """Error on rank 0 when rank 1 leaves instead of computing the loss."""
    output_folder(job_file).mkdir(exist_ok=True)
    if mesh.rank == 1:

        def leave(*_: object, **__: object) -> Tensor:
            _close_connections()
            raise LookupError("gone")

        build_module.head_loss = leave
    training = build(read_job(job_file), job_file, mesh)
    try:
        training.engine.step(training.loader.micro_batches(1), 1e-3, started_timer())
    except Exception as error:
        return type(error).__name__
    return None


def _close_connections() -> None:
    """Close this process's connections, as its exit would."""
    for descriptor in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError), socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
            connection.getpeername()  # a listening socket has none and is left alone
            connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow(target="layouts")
def test_a_rank_that_exits_is_reported_as_lost_by_the_other_stages(tmp_path: Path, data: Path) -> None:
    two = Degrees(pipeline=2)
    met = on_mesh(two, _exit_within_a_step, staged(tmp_path, data, two, ONE_F_ONE_B))
    assert met == ["RankLostError", "LookupError"]


@pytest.mark.parametrize("raised", [torch.OutOfMemoryError("full"), RankLostError("gone"), ValueError("bad")])
def test_an_error_of_a_stage_is_raised_unchanged(raised: Exception) -> None:
    with pytest.raises(type(raised), match=str(raised)), unwrap_stage_errors():
        try:
            raise raised
        except Exception as error:
            raise RuntimeError("failed to run forward") from error


def test_other_errors_are_raised_unchanged() -> None:
    with pytest.raises(RankLostError, match="lost"), unwrap_stage_errors():
        try:
            raise RuntimeError("gloo/transport/tcp")
        except RuntimeError as error:
            raise RankLostError("lost") from error
