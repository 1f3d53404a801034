"""Optimizers on a GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.jobs import build_here, losses, train_here, write_job
from trainwright.contracts.optimizer_spec import UPDATE_RULES
from trainwright_trainer.observe.step_timer import StepTimer
from trainwright_trainer.optim import muon
from trainwright_trainer.optim.replicated_updater import ReplicatedUpdater

pytestmark = pytest.mark.usefixtures("cuda")

GPU = "cuda:0"


def test_muon_orthogonalizes_in_bfloat16_and_learns_what_the_cpu_learns(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = {"steps": 10, "warmup_steps": 4}
    sections: dict[str, Any] = {
        "precision": {"kind": "bf16", "compile": "off"},
        "optimizer": {"kind": "muon"},
    }
    on_gpu = write_job(tmp_path / "gpu", data, job={"device": "cuda"}, schedule=shorter, **sections)
    on_cpu = write_job(tmp_path / "cpu", data, schedule=shorter, **sections)
    dtypes = set()
    exact = muon.orthogonalized

    def recording(matrix: torch.Tensor) -> torch.Tensor:
        dtypes.add((matrix.device.type, matrix.dtype))
        return exact(matrix)

    monkeypatch.setattr(muon, "orthogonalized", recording)
    train_here(on_gpu, GPU)
    train_here(on_cpu)
    assert dtypes == {("cuda", torch.bfloat16), ("cpu", torch.float32)}
    # Losses differ by 1e-4 if bfloat16 matmuls are rounded as on a CPU, and more if they are summed in another order.
    differences = [abs(ours - theirs) for ours, theirs in zip(losses(on_gpu), losses(on_cpu), strict=True)]
    assert max(differences) < 0.05


@pytest.mark.parametrize("kind", UPDATE_RULES)
def test_the_host_does_not_wait_in_an_update(kind: str, tmp_path: Path, data: Path) -> None:
    training = build_here(write_job(tmp_path, data, job={"device": "cuda"}, optimizer={"kind": kind}), GPU)
    engine, timer = training.engine, StepTimer(torch.device(GPU))
    timer.start()
    engine.step(training.loader.micro_batches(1), 1e-3, timer)  # copies what all updates use to the device
    assert isinstance(engine.updater, ReplicatedUpdater)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        engine.updater.optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
