"""Optimizers on a GPU."""

from pathlib import Path

import pytest
import torch

from tests.trainer.jobs import losses, train_here, write_job
from trainwright_trainer.optim import muon

pytestmark = pytest.mark.usefixtures("cuda")

GPU = "cuda:0"


def test_muon_orthogonalizes_in_bfloat16_and_learns_what_the_cpu_learns(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorter = {"steps": 10, "warmup_steps": 4}
    sections = {"precision": {"kind": "bf16", "compile": "off"}, "optimizer": {"kind": "muon"}}
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
