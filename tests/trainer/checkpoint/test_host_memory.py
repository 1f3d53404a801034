"""A snapshot's memory is as large as the state, pinned once, and reused by the next snapshot."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainwright_trainer.checkpoint.host_memory import HostMemory


class Pins:
    """Replaces a driver that pins memory."""

    def __init__(self) -> None:
        self.pinned: list[int] = []
        self.unpinned = 0

    def __call__(self, block: Tensor) -> Callable[[], None]:
        self.pinned.append(block.nbytes)

        def unpin() -> None:
            self.unpinned += 1

        return unpin


STATE = [
    torch.randn(5, 7),
    torch.randn(3, 128).to(torch.float8_e4m3fn),
    torch.tensor(2.0),
    torch.arange(9),
    torch.randn(0, 4),
    torch.randn(2, 3).half(),
]


def test_allocations_are_adjacent_and_reused() -> None:
    pins = Pins()
    memory = HostMemory(pins)
    addresses = []
    for _ in range(2):
        places = memory.allocate(STATE, pinned=True)
        for place, tensor in zip(places, STATE, strict=True):
            assert (place.shape, place.dtype) == (tensor.shape, tensor.dtype) and place.is_contiguous()
            place.copy_(tensor)
        for place, tensor in zip(places, STATE, strict=True):  # none overlaps another
            assert torch.equal(place.float(), tensor.float())
        addresses.append([place.data_ptr() for place in places])
    assert addresses[0] == addresses[1]
    assert pins.pinned == [192 + 384 + 64 + 128 + 64]  # each rounded up to 64 bytes, none to a power of two
    assert pins.unpinned == 0


@pytest.mark.slow(target="layouts")
def test_memory_is_unpinned_when_a_larger_block_replaces_it_and_at_its_end() -> None:
    pins = Pins()
    memory = HostMemory(pins)
    memory.allocate([torch.zeros(16)], pinned=True)
    place = memory.allocate([torch.zeros(64)], pinned=True)[0].fill_(3.0)
    memory.allocate([torch.zeros(8)], pinned=True)
    assert (pins.pinned, pins.unpinned) == ([64, 256], 1)
    del memory
    gc.collect()
    assert pins.unpinned == 2
    assert (place == 3.0).all()


def test_a_training_on_a_cpu_copies_into_one_block_without_pinning_it() -> None:
    """Later copies reuse the memory of the first: pages that are already mapped cost nothing."""
    pins = Pins()
    memory = HostMemory(pins)
    state = [*STATE, torch.randn(4, 6).t()]
    first = memory.copy(state)
    addresses = [copy.data_ptr() for copy in first]
    for tensor, copy in zip(state, first, strict=True):
        assert torch.equal(copy.float(), tensor.float()) and copy.is_contiguous()
        assert not tensor.numel() or copy.data_ptr() != tensor.data_ptr()
    moved = [(tensor.float() + 1).to(tensor.dtype) for tensor in state]
    assert all(torch.equal(copy.float(), held.float()) for copy, held in zip(first, state, strict=True))
    second = memory.copy(moved)
    assert [copy.data_ptr() for copy in second] == addresses
    assert all(torch.equal(copy.float(), held.float()) for copy, held in zip(second, moved, strict=True))
    assert pins.pinned == []


@pytest.mark.usefixtures("cuda")
def test_copies_from_a_gpu_are_pinned_and_complete() -> None:
    state = [tensor.cuda() for tensor in STATE]
    memory = HostMemory()
    for _ in range(2):
        copies = memory.copy(state)
        for copy, tensor in zip(copies, STATE, strict=True):
            assert torch.equal(copy.float(), tensor.float())
        assert copies[0].is_pinned()
