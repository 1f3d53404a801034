"""The stand-in lets the trainer's code for GPUs run on a CPU, and catches what would fail on a GPU."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.conftest import check_gpu_marks
from tests.cuda_stand_in.driver import cuda_stand_in
from tests.trainer.fp8 import test_gpu
from trainwright_trainer.data.loader import Batch
from trainwright_trainer.fp8.compute import matmul
from trainwright_trainer.runtime.seeds import seed_step
from trainwright_trainer.training.forward_backward import GradientAccumulation


def rename_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(GradientAccumulation, "compute_gradients")


def leave_out_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_gpu, "GPU", "cuda")


def use_a_gpu_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_gpu, "GPU", "cuda:7")


def leave_the_batch_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "to", lambda batch, device: batch)


def copy_the_batch_from_pageable_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Batch, "to", lambda batch, device: Batch(batch.sequences.to(device, non_blocking=True))
    )


def read_the_loss_in_each_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = GradientAccumulation._loss

    def reading(self: GradientAccumulation, batch: Batch) -> Tensor:
        loss = real(self, batch)
        print(loss.item())
        return loss

    monkeypatch.setattr(GradientAccumulation, "_loss", reading)


def select_by_a_mask_in_each_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = GradientAccumulation._loss

    def selecting(self: GradientAccumulation, batch: Batch) -> Tensor:
        assert batch.tokens[batch.tokens > 0].ndim == 1
        return real(self, batch)

    monkeypatch.setattr(GradientAccumulation, "_loss", selecting)


def lay_out_an_operand_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_rows(
        a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out: torch.dtype, fast: bool
    ) -> Tensor:
        return torch._scaled_mm(a, b.t().contiguous(), scale_a, scale_b, out_dtype=out, use_fast_accum=fast)

    monkeypatch.setattr(matmul, "_scaled_mm", by_rows)


def query_a_function_that_cuda_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda, "synchronize")


@pytest.mark.parametrize(
    ("plant", "error", "says"),
    [
        (rename_a_method, AttributeError, "compute_gradients"),
        (leave_out_the_index, AssertionError, "a GPU without an index"),
        (use_a_gpu_that_does_not_exist, RuntimeError, "invalid device ordinal"),
        (leave_the_batch_on_the_host, RuntimeError, "found cpu, cuda:0"),
        (copy_the_batch_from_pageable_memory, RuntimeError, "synchronizing"),
        (read_the_loss_in_each_micro_batch, RuntimeError, "synchronizing"),
        (select_by_a_mask_in_each_micro_batch, RuntimeError, "synchronizing"),
        (lay_out_an_operand_by_rows, RuntimeError, "col_major"),
        (query_a_function_that_cuda_lacks, AttributeError, "synchronize"),
    ],
)
def test_an_injected_fault_fails_the_gpu_test(
    plant: Callable[[pytest.MonkeyPatch], None],
    error: type[Exception],
    says: str,
    tmp_path: Path,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with cuda_stand_in():
        plant(monkeypatch)
        with pytest.raises(error, match=says):
            test_gpu.test_the_host_waits_only_for_the_loss(tmp_path, data)
        monkeypatch.undo()


def test_generators_are_looked_up_by_index() -> None:
    with cuda_stand_in():
        seed_step(0, 1, 0, torch.device("cuda:1"))
        with pytest.raises(TypeError):
            seed_step(0, 1, 0, torch.device("cuda"))


def test_tensors_are_on_the_device_of_their_inputs() -> None:
    with cuda_stand_in():
        x = torch.randn(3, 4, device="cuda:1", requires_grad=True)
        y = (x.t() @ torch.ones_like(x)).bfloat16()
        y.sum().backward()
        here = [x, x[0], y, x.new_zeros(2), x.new_tensor([1.0]), torch.tensor(1, device=x.device), x.grad]
        assert [str(tensor.device) for tensor in here] == ["cuda:1"] * len(here)
        host = x.detach().cpu()
        assert host.device.type == "cpu" and torch.equal(host, x.detach().cpu())
        host.zero_()
        assert x.detach().cpu().any()
        with pytest.raises(RuntimeError, match="found cuda:0, cuda:1"):
            x + torch.randn(3, 4, device="cuda")
    assert torch.zeros(2).device.type == "cpu"


class _Item:
    """What the check reads of a collected test."""

    nodeid = "test_some.py::test_it"

    def __init__(self, *fixtures: str) -> None:
        self.fixturenames = fixtures

    def get_closest_marker(self, name: str) -> bool:
        return name == "gpu"


def test_a_gpu_test_that_cannot_run_on_the_stand_in_is_refused() -> None:
    check_gpu_marks([_Item("tmp_path", "cuda")])
    with pytest.raises(pytest.UsageError, match="test_it: takes its GPU from the fixture"):
        check_gpu_marks([_Item("tmp_path")])
