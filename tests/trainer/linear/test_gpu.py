"""Matmuls of bf16 layers on a GPU: weight gradients added to a float32 sum, and fused matmuls of one input."""

from pathlib import Path

import pytest
import torch

from tests.trainer.jobs import losses, train_here, write_job
from trainwright_trainer.linear.add_weight_gradient import add_weight_gradient
from trainwright_trainer.model.fused_projections import FusedProjections

pytestmark = pytest.mark.usefixtures("cuda")

GPU = "cuda:0"


def test_a_16_bit_matmul_is_not_rounded_before_it_is_added() -> None:
    total = torch.randn(64, 48)
    dy, x = torch.randn(256, 64).bfloat16(), torch.randn(256, 48).bfloat16()
    exact = total.double() + dy.double().t() @ x.double()
    found = total.to(GPU)
    add_weight_gradient(found, dy.to(GPU), x.to(GPU))
    # 256 products of up to 20 in float32 lose 1e-4; rounding their sum of about 16 to bfloat16 would lose 0.06.
    assert (found.cpu() - exact).abs().max() < 1e-3


@pytest.mark.slow(target="layouts")
@pytest.mark.parametrize("compiled", ["on", "off"])
def test_a_run_of_several_micro_batches_learns_what_the_cpu_learns(
    tmp_path: Path, data: Path, compiled: str
) -> None:
    precision, shorter = {"kind": "bf16", "compile": compiled}, {"steps": 10, "warmup_steps": 4}
    on_gpu = write_job(tmp_path / "gpu", data, job={"device": "cuda"}, precision=precision, schedule=shorter)
    on_cpu = write_job(tmp_path / "cpu", data, precision={"kind": "bf16", "compile": "off"}, schedule=shorter)
    modules = train_here(on_gpu, GPU).engine.model.modules()
    fused = [module for module in modules if isinstance(module, FusedProjections)]
    assert all(module.fused_cast is not None for module in fused)
    assert len(fused) == (4 if compiled == "on" else 0), "attention and feed-forward network of two layers"
    train_here(on_cpu)
    differences = [abs(ours - theirs) for ours, theirs in zip(losses(on_gpu), losses(on_cpu), strict=True)]
    assert max(differences) < 0.05
