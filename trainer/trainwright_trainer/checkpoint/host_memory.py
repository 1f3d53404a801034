"""The memory that snapshots are copied to: one block of the size of this rank's state, reused by all of them.

New memory costs more than the copy, because the kernel creates each page on first write. So only the first snapshot
pays for the block; on a GPU it is allocated earlier, while the first steps compile. On a CPU, a training uses
additional memory of its state's size from the first checkpoint on. A GPU copies at full speed only to pinned memory,
and torch's own pinned allocator rounds each tensor up to a power of two: 34 GB of state become 45 to 50. So the block
is ordinary memory, pinned in one piece for copies from a device, and tensors are next to each other in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT_BYTES = 64


class HostMemory:
    """The copies of one snapshot; the next one overwrites them."""

    def __init__(self, pin: Callable[[Tensor], Callable[[], None]] | None = None) -> None:
        """``pin`` pins a tensor's memory and returns a function that unpins it; CUDA's by default."""
        self._pin = pin or pin_memory
        self._block = torch.empty(0, dtype=torch.uint8)
        self._unpin: Callable[[], object] = lambda: None

    def copy(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Contiguous, complete copies of ``tensors``, valid until the next call overwrites them."""
        from_device = any(tensor.device.type != "cpu" for tensor in tensors)
        places = self.allocate(tensors, pinned=from_device)
        for place, tensor in zip(places, tensors, strict=True):
            place.copy_(tensor.detach(), non_blocking=True)
        if from_device:
            torch.cuda.synchronize()
        return places

    def allocate(self, tensors: Sequence[Tensor], pinned: bool) -> list[Tensor]:
        """Memory in the block for each of ``tensors``, of its shape and dtype; earlier allocations are reused."""
        firsts = [0]
        for tensor in tensors:
            firsts.append(firsts[-1] + -(-tensor.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
        if firsts[-1] > self._block.nbytes:
            self._grow(firsts[-1], pinned)
        return [
            self._block[first : first + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for first, tensor in zip(firsts[:-1], tensors, strict=True)
        ]

    def _grow(self, size_bytes: int, pinned: bool) -> None:
        self._unpin()
        self._unpin = lambda: None
        self._block = torch.empty(0, dtype=torch.uint8)  # free the old block before allocating the new one
        self._block = torch.empty(size_bytes, dtype=torch.uint8)
        if not pinned:
            return
        # Pinned memory must not be freed: the finalizer keeps the block alive. Nothing is needed at
        # process exit.
        self._unpin = unpin = weakref.finalize(self, _undo, self._pin(self._block), self._block)
        unpin.atexit = False


def pin_memory(block: Tensor) -> Callable[[], None]:
    """Pin a block for copies by CUDA; returns a function that unpins it."""
    cuda, address = torch.cuda.cudart(), block.data_ptr()
    _check(cuda.cudaHostRegister(address, block.nbytes, 0))
    return lambda: _check(cuda.cudaHostUnregister(address))


def _check(code: Any) -> None:
    if int(code) != 0:
        raise RuntimeError(f"host memory for checkpoints cannot be pinned: CUDA error {int(code)}")


def _undo(unpin: Callable[[], None], block: Tensor) -> None:
    unpin()
