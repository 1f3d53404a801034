"""The self-test of a suspected node, on healthy devices and on devices that lose or change data."""

from collections.abc import Iterator
from itertools import count

import pytest
import torch
from torch import Tensor

from trainwright.contracts.agent_protocol import SelfTestCheck
from trainwright_trainer.process import health

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_CPU_BYTES", 3 * 2**13)
    monkeypatch.setattr(health, "_BLOCK_BYTES", 2**13)
    monkeypatch.setattr(health, "_PRODUCT_SIZE", 64)


def test_a_healthy_machine_passes_every_check() -> None:
    checks = [SelfTestCheck.model_validate(check) for check in health.check_health()]
    assert [check.name for check in checks][:2] == ["memory of cpu", "matmuls on cpu"]
    assert [check for check in checks if not check.passed or check.detail] == []


def test_a_flipped_bit_is_found_in_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    written = health.written_blocks

    def flipped(device: torch.device) -> Iterator[Tensor]:
        for number, block in enumerate(written(device)):
            if number == 2:
                block[7] ^= 1 << 40
            yield block

    monkeypatch.setattr(health, "written_blocks", flipped)
    assert health.check_memory(CPU) == "1 of 1024 values in block 2 had changed"


def test_blocks_differ_so_that_swapped_addresses_are_detected() -> None:
    first, second = health.pattern(0, CPU), health.pattern(1, CPU)
    assert not bool((first == second).any())
    values = torch.cat((first, second))
    for bit in range(64):
        assert {0, 1} == set(((values >> bit) & 1).tolist()), bit


def make_matmuls_faulty(monkeypatch: pytest.MonkeyPatch, error: float, at: range) -> None:
    """Add ``error`` to one value of the float32 matmuls whose numbers are in ``at``."""
    multiply, numbers = Tensor.matmul, count(1)

    def faulty(left: Tensor, right: Tensor) -> Tensor:
        found = multiply(left, right)
        if found.dtype == torch.float32 and next(numbers) in at:
            found[0, 0] += error
        return found

    monkeypatch.setattr(Tensor, "__matmul__", faulty)


def test_a_matmul_that_is_not_reproducible_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make_matmuls_faulty(monkeypatch, 1e-3, at=range(4, 5))
    assert health.check_matmuls(CPU) == "matmul 4 of the same matrices differed from the first"


def test_matmuls_with_the_same_error_each_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make_matmuls_faulty(monkeypatch, 3.0, at=range(1, 11))
    assert health.check_matmuls(CPU) == "a matmul was wrong by 3"


def test_a_transfer_that_changes_data_is_reported_with_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.check_exchanges(CPU, [CPU, CPU]) == ""
    monkeypatch.setattr(torch, "equal", lambda *_: False)
    assert health.check_exchanges(CPU, [CPU]) == "cpu: the data came back changed"


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: " + "x" * 2_000), MemoryError()])
def test_a_device_that_refuses_fails_its_check_with_a_detail_that_can_be_reported(error: Exception) -> None:
    def fail() -> str:
        raise error

    check = SelfTestCheck.model_validate(health._run("memory of cuda:3", fail))
    assert not check.passed
    assert check.detail.startswith(type(error).__name__)
